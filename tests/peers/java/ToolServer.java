import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM. A line of stdin is a main class and its
 * arguments, separated by tabs; the line of stdout that answers is the exit status, and what the tool wrote to
 * stdout and to stderr, both in Base64.
 */
public final class ToolServer {
    private ToolServer() {}

    private static final class Ended extends RuntimeException {
        private final int status;

        private Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] args) throws IOException, ReflectiveOperationException {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream error = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(error, true, StandardCharsets.UTF_8));
            int status = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.setOut(answers);
            System.setErr(errors);
            answers.println(status + "\t" + base64(out) + "\t" + base64(error));
            answers.flush();
        }
    }

    private static int run(String mainClass, String[] args) throws ReflectiveOperationException {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended) {
                return ((Ended) thrown.getCause()).status;
            }
            thrown.getCause().printStackTrace(System.err);
            return 1;
        }
    }

    private static String base64(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
