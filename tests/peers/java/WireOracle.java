import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with the Java clients' own generated parsers.
 *
 * Standard input: one message a line, as "request|response KEY VERSION HEX". Standard output, for each line: the message
 * written again, in hex, a tab, and its fields as JSON; or "error", a tab, and why it cannot be read.
 */
public final class WireOracle {
    private WireOracle() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) throws ReflectiveOperationException {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
        ApiMessage message = words[0].equals("request") ? type.newRequest() : type.newResponse();
        short version = Short.parseShort(words[2]);
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
        try {
            message.read(new ByteBufferAccessor(bytes), version);
        } catch (RuntimeException unreadable) {
            return "error\t" + unreadable;
        }
        if (bytes.hasRemaining()) {
            return "error\t" + bytes.remaining() + " bytes are left";
        }
        ObjectSerializationCache sizes = new ObjectSerializationCache();
        ByteBuffer again = ByteBuffer.allocate(message.size(sizes, version));
        message.write(new ByteBufferAccessor(again), sizes, version);
        again.flip();
        byte[] written = new byte[again.remaining()];
        again.get(written);
        return HexFormat.of().formatHex(written) + "\t" + json(message, version);
    }

    private static String json(ApiMessage message, short version) throws ReflectiveOperationException {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Method write = converter.getMethod("write", message.getClass(), short.class);
        return write.invoke(null, message, version).toString();
    }
}
