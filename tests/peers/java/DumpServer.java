import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs kafka.tools.DumpLogSegments any number of times in one JVM, so that a comparison costs milliseconds
 * instead of a JVM start.
 *
 * <p>A request on stdin is an int count and that many strings (int length, UTF-8 bytes): the arguments. The answer on
 * stdout is an int exit status, then stdout, stderr and the exception that the tool threw (empty when it threw none),
 * each as int length and bytes. The end of stdin ends the server.
 */
public final class DumpServer {
    /** Thrown in place of ending the JVM when the tool asks to exit. */
    private static final class ExitRequest extends RuntimeException {
        private final int status;

        ExitRequest(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    /** The tool keeps the first System.out it sees, so one stream stays and its target changes with each request. */
    private static final class Capture extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public void write(int value) {
            target.write(value);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            target.write(bytes, from, count);
        }

        byte[] take() {
            byte[] taken = target.toByteArray();
            target = new ByteArrayOutputStream();
            return taken;
        }
    }

    private DumpServer() {}

    public static void main(String[] unused) throws Exception {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out));
        Capture out = new Capture();
        Capture err = new Capture();
        PrintStream outStream = new PrintStream(out, false, "UTF-8");
        PrintStream errStream = new PrintStream(err, true, "UTF-8");
        System.setOut(outStream);
        System.setErr(errStream);
        Exit.setExitProcedure((status, message) -> {
            throw new ExitRequest(status);
        });
        Method tool = Class.forName("kafka.tools.DumpLogSegments").getMethod("main", String[].class);
        int count;
        while ((count = nextCount(requests)) >= 0) {
            String[] args = new String[count];
            for (int i = 0; i < count; i++) {
                byte[] text = new byte[requests.readInt()];
                requests.readFully(text);
                args[i] = new String(text, StandardCharsets.UTF_8);
            }
            String thrown = "";
            int status = 0;
            try {
                tool.invoke(null, (Object) args);
            } catch (InvocationTargetException wrapped) {
                Throwable cause = wrapped.getCause();
                status = cause instanceof ExitRequest ? ((ExitRequest) cause).status : 1;
                thrown = cause instanceof ExitRequest ? "" : cause.toString();
            }
            outStream.flush();
            errStream.flush();
            answers.writeInt(status);
            writeBytes(answers, out.take());
            writeBytes(answers, err.take());
            writeBytes(answers, thrown.getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
    }

    private static int nextCount(DataInputStream requests) throws IOException {
        int first = requests.read();
        if (first < 0) {
            return -1;
        }
        return first << 24 | requests.readUnsignedByte() << 16 | requests.readUnsignedShort();
    }

    private static void writeBytes(DataOutputStream answers, byte[] bytes) throws IOException {
        answers.writeInt(bytes.length);
        answers.write(bytes);
    }
}
