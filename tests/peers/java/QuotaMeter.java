import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import kafka.server.ClientQuotaManager;
import kafka.server.ControllerMutationQuotaManager;
import kafka.server.QuotaType;
import kafka.utils.QuotaUtils;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import scala.Option;

/**
 * Measures as a broker's quotas do. Lines of standard input, TABs between their fields:
 *
 * <ul>
 *   <li>{@code rate windows seconds limit most time:value...} (milliseconds; {@code most} bounds the throttle time,
 *       -1 does not) is answered with the throttle time after each value;
 *   <li>{@code tokens windows seconds limit time:value...} with the same for a token bucket;
 *   <li>{@code which user client entity=limit...}, an entity being {@code user/client} with empty parts for none, with
 *       user and client id of the bucket and its limit.
 * </ul>
 */
public final class QuotaMeter {
    private QuotaMeter() {}

    public static void main(String[] unused) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            System.out.println(fields[0].equals("which") ? which(fields) : measured(fields));
        }
    }

    private static String measured(String[] fields) {
        boolean isRate = fields[0].equals("rate");
        MetricConfig config = new MetricConfig()
                .samples(Integer.parseInt(fields[1]))
                .timeWindow(Long.parseLong(fields[2]), TimeUnit.SECONDS)
                .quota(Quota.upperBound(Double.parseDouble(fields[3])));
        long most = isRate ? Long.parseLong(fields[4]) : -1;
        List<String> times = new ArrayList<>();
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("s");
            MeasurableStat stat = isRate ? new Rate() : new TokenBucket();
            sensor.add(new MetricName("m", "g", "", Map.of()), stat, config);
            for (int number = isRate ? 5 : 4; number < fields.length; number++) {
                String[] event = fields[number].split(":");
                long now = Long.parseLong(event[0]);
                times.add(String.valueOf(throttled(sensor, Double.parseDouble(event[1]), now, isRate, most)));
            }
        }
        return String.join("\t", times);
    }

    private static int throttled(Sensor sensor, double value, long now, boolean isRate, long most) {
        try {
            sensor.record(value, now, true);
            return 0;
        } catch (QuotaViolationException violation) {
            if (!isRate) {
                return (int) ControllerMutationQuotaManager.throttleTimeMs(violation, now);
            }
            return (int) (most < 0
                    ? QuotaUtils.throttleTime(violation, now)
                    : QuotaUtils.boundedThrottleTime(violation, most, now));
        }
    }

    private static String which(String[] fields) throws IOException {
        try (Metrics metrics = new Metrics()) {
            ClientQuotaManager manager = new ClientQuotaManager(
                    new ClientQuotaManagerConfig(), metrics, QuotaType.Produce$.MODULE$, Time.SYSTEM, "", Option.empty());
            for (int number = 3; number < fields.length; number++) {
                String[] entity = fields[number].split("=");
                String[] parts = entity[0].split("/", -1);
                Option<String> user = parts[0].isEmpty() ? Option.empty() : Option.apply(parts[0]);
                Option<String> client = parts[1].isEmpty() ? Option.empty() : Option.apply(parts[1]);
                Quota quota = Quota.upperBound(Double.parseDouble(entity[1]));
                manager.updateQuota(user, client, client, Option.apply(quota));
            }
            KafkaPrincipal principal = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, fields[1]);
            Session session = new Session(principal, InetAddress.getLoopbackAddress());
            scala.collection.immutable.Map<String, String> tags =
                    manager.getOrCreateQuotaSensors(session, fields[2]).metricTags();
            double limit = manager.quota(principal, fields[2]).bound();
            manager.shutdown();
            return tags.apply("user") + "\t" + tags.apply("client-id") + "\t" + limit;
        }
    }
}
