import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import kafka.server.KafkaConfig;

/**
 * Says of each line of standard input, the configs of a broker as {@code key=value} with TABs between them, whether Kafka
 * takes them: {@code ok} or {@code no TAB why}.
 */
public final class ConfigCheck {
    private ConfigCheck() {}

    public static void main(String[] unused) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties configs = new Properties();
            for (String config : line.split("\t")) {
                int equals = config.indexOf('=');
                configs.setProperty(config.substring(0, equals), config.substring(equals + 1));
            }
            System.out.println(judgement(configs));
        }
    }

    private static String judgement(Properties configs) {
        try {
            KafkaConfig.fromProps(configs, false);
            return "ok";
        } catch (RuntimeException refused) {
            return "no\t" + String.valueOf(refused.getMessage()).replaceAll("\\s", " ");
        }
    }
}
