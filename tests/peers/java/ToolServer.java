import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM. A line of stdin is a main class, the tool's
 * stdin in Base64 and its arguments, separated by tabs; the line of stdout that answers is the exit status, and
 * what the tool wrote to stdout and to stderr, both in Base64. What a tool would do when its JVM ends is done
 * before the answer.
 */
public final class ToolServer {
    private ToolServer() {}

    /** Ends a tool. Some catch it and exit again, but their JVM would have ended the first time. */
    private static final class Ended extends RuntimeException {
        private Ended() {
            super(null, null, false, false);
        }
    }

    /**
     * A stream whose target changes with each tool: some tools keep the stream that was there at first. Clients
     * that a tool has not closed go on in their threads, and complain when their broker has stopped. What they
     * write is no part of what later tools write.
     */
    private static final class Switch extends OutputStream {
        private final OutputStream between;
        private volatile OutputStream target;
        private volatile Set<Thread> left = Set.of();

        private Switch(OutputStream between) {
            this.between = between;
            this.target = between;
        }

        private void begin(OutputStream output, Set<Thread> leftByOthers) {
            left = leftByOthers;
            target = output;
        }

        private void end() {
            target = between;
        }

        private OutputStream ofThisThread() {
            return left.contains(Thread.currentThread()) ? between : target;
        }

        @Override
        public void write(int one) throws IOException {
            ofThisThread().write(one);
        }

        @Override
        public void write(byte[] bytes, int start, int size) throws IOException {
            ofThisThread().write(bytes, start, size);
        }

        @Override
        public void flush() throws IOException {
            ofThisThread().flush();
        }
    }

    public static void main(String[] args) throws IOException, ReflectiveOperationException {
        PrintStream answers = System.out;
        Switch errors = new Switch(System.err);
        Switch outputs = new Switch(System.err);
        System.setOut(new PrintStream(outputs, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        AtomicReference<Integer> first = new AtomicReference<>();
        Exit.setExitProcedure((status, message) -> {
            if (first.compareAndSet(null, status)) {
                outputs.end();
                errors.end();
            }
            throw new Ended();
        });
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream error = new ByteArrayOutputStream();
            Set<Thread> left = new HashSet<>(Thread.getAllStackTraces().keySet());
            left.remove(Thread.currentThread());
            outputs.begin(out, left);
            errors.begin(error, left);
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(words[1])));
            int status = run(words[0], Arrays.copyOfRange(words, 2, words.length));
            hooks.forEach(Runnable::run);
            hooks.clear();
            Integer exited = first.getAndSet(null);
            outputs.end();
            errors.end();
            answers.println((exited == null ? status : exited) + "\t" + base64(out) + "\t" + base64(error));
            answers.flush();
        }
    }

    private static int run(String mainClass, String[] args) throws ReflectiveOperationException {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace(System.err);
            return 1;
        }
    }

    private static String base64(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
