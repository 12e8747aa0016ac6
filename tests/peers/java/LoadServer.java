import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import kafka.log.UnifiedLog;
import kafka.log.UnifiedLog$;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import scala.Option;

/**
 * Loads partition directories the way a Kafka 3.9 broker does at its start, any number in one JVM.
 *
 * <p>A request is a line on stdin: {@code directory TAB index.interval.bytes TAB segment.index.bytes TAB
 * recoveryPoint TAB logStartOffset TAB clean}. The log is loaded (and recovered, unless clean), flushed and closed as
 * at a clean stop. The answer is a line on stdout: {@code ok TAB logStartOffset TAB logEndOffset}, or {@code error
 * TAB exception}. The end of stdin ends the server.
 */
public final class LoadServer {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_ID_EXPIRATION_MS = 86_400_000;
    private static final int PRODUCER_ID_CHECK_INTERVAL_MS = 600_000;

    private LoadServer() {}

    public static void main(String[] unused) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String request;
        while ((request = requests.readLine()) != null) {
            answers.println(answer(request.split("\t"), scheduler));
        }
        scheduler.shutdown();
        // Kafka's statistics keep threads of their own alive.
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] fields, KafkaScheduler scheduler) {
        try {
            UnifiedLog log = load(fields, scheduler);
            String end = log.logStartOffset() + "\t" + log.logEndOffset();
            log.close();
            return "ok\t" + end;
        } catch (Exception refused) {
            return "error\t" + refused.toString().replace('\n', ' ');
        } finally {
            settle(scheduler);
        }
    }

    /** The epoch file is written in the background: an answer waits for what was scheduled before it. */
    private static void settle(KafkaScheduler scheduler) {
        CountDownLatch done = new CountDownLatch(1);
        scheduler.schedule("settle", done::countDown, 0L, -1L);
        try {
            done.await();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static UnifiedLog load(String[] fields, KafkaScheduler scheduler) {
        Properties configs = new Properties();
        configs.put("index.interval.bytes", fields[1]);
        configs.put("segment.index.bytes", fields[2]);
        UnifiedLog$ logs = UnifiedLog$.MODULE$;
        return logs.apply(
                new File(fields[0]),
                new LogConfig(configs),
                Long.parseLong(fields[4]),
                Long.parseLong(fields[3]),
                scheduler,
                new BrokerTopicStats(false),
                Time.SYSTEM,
                MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, true),
                PRODUCER_ID_CHECK_INTERVAL_MS,
                new LogDirFailureChannel(10),
                Boolean.parseBoolean(fields[5]),
                Option.empty(),
                true,
                logs.apply$default$15(),
                logs.apply$default$16(),
                logs.apply$default$17());
    }
}
