import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Base64;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/**
 * Encrypts and decrypts secrets as a broker does. Lines of standard input, TABs between their fields:
 * {@code encode secret keyFactory cipher keyLength iterations text} and {@code decode secret stored}; texts in base64, an
 * empty key factory is Kafka's own choice. Answers what is stored, or the text; {@code no} where it cannot.
 */
public final class PasswordEncoding {
    private PasswordEncoding() {}

    public static void main(String[] unused) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split("\t", -1)));
        }
    }

    private static String answer(String[] fields) {
        Password secret = new Password(fields[1]);
        try {
            if (fields[0].equals("decode")) {
                String cipher = fields[2].contains("AES/GCM/") ? "AES/GCM/NoPadding" : "AES/CBC/PKCS5Padding";
                String text = PasswordEncoder.encrypting(secret, null, cipher, 128, 1024).decode(fields[2]).value();
                return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
            }
            String keyFactory = fields[2].isEmpty() ? null : fields[2];
            int keyLength = Integer.parseInt(fields[4]);
            int iterations = Integer.parseInt(fields[5]);
            String text = new String(Base64.getDecoder().decode(fields[6]), StandardCharsets.UTF_8);
            return PasswordEncoder.encrypting(secret, keyFactory, fields[3], keyLength, iterations).encode(new Password(text));
        } catch (ConfigException | GeneralSecurityException refused) {
            return "no";
        }
    }
}
