import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import kafka.log.Cleaner;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import kafka.log.UnifiedLog$;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Some;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Cleans partition directories the way a Kafka 3.9 broker's cleaner does, at a time that the caller chooses.
 *
 * <p>A request is a line on stdin: {@code directory TAB nowMs TAB checkpoint (-1: none) TAB lastStableOffset (-1: the
 * end) TAB dedupeBufferBytes TAB ioBufferBytes TAB topicConfigs (k=v;k=v)}. The log is loaded as after a clean stop,
 * judged, cleaned unless {@code ioBufferBytes} is 0, and closed. The answer is a line on stdout: {@code ok TAB
 * firstDirty TAB firstUncleanable TAB cleanBytes TAB cleanableBytes TAB endOffset TAB cleanNanos}, or {@code error TAB
 * exception}. The end of stdin ends the server.
 */
public final class CleanServer {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_ID_CHECK_INTERVAL_MS = 600_000;
    private static final int MAX_IO_BUFFER_BYTES = 1_048_588;
    private static final double LOAD_FACTOR = 0.9;

    private CleanServer() {}

    private static final class Unhindered extends AbstractFunction1<TopicPartition, BoxedUnit> {
        @Override
        public BoxedUnit apply(TopicPartition partition) {
            return BoxedUnit.UNIT;
        }
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String request;
        while ((request = requests.readLine()) != null) {
            answers.println(answer(request.split("\t", -1), scheduler));
        }
        // What waits for its delayed deletion is left to the caller.
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] fields, KafkaScheduler scheduler) {
        try {
            SetTime time = new SetTime();
            time.nowMs = Long.parseLong(fields[1]);
            UnifiedLog log = load(fields, time, scheduler);
            String outcome = clean(log, fields, time);
            settle(scheduler);
            log.close();
            return "ok\t" + outcome;
        } catch (Throwable refused) {
            refused.printStackTrace();
            return "error\t" + refused.toString().replace('\n', ' ');
        }
    }

    private static String clean(UnifiedLog log, String[] fields, Time time) throws Exception {
        long stable = Long.parseLong(fields[3]);
        log.updateHighWatermark(stable < 0 ? log.logEndOffset() : stable);
        long checkpoint = Long.parseLong(fields[2]);
        Option<Object> known = checkpoint < 0 ? Option.empty() : new Some<Object>(checkpoint);
        OffsetsToClean range = LogCleanerManager.cleanableOffsets(log, known, time.milliseconds());
        LogToClean wanted = new LogToClean(
                log.topicPartition(), log, range.firstDirtyOffset(), range.firstUncleanableDirtyOffset(), false);
        long endOffset = -1;
        long startNs = System.nanoTime();
        int ioBufferBytes = Integer.parseInt(fields[5]);
        if (ioBufferBytes > 0 && wanted.cleanableBytes() > 0) {
            Cleaner cleaner = new Cleaner(
                    0, new SkimpyOffsetMap(Integer.parseInt(fields[4])), ioBufferBytes / 2, MAX_IO_BUFFER_BYTES,
                    LOAD_FACTOR, new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM), time,
                    new Unhindered());
            startNs = System.nanoTime();
            endOffset = (Long) cleaner.doClean(wanted, time.milliseconds())._1();
        }
        long elapsedNs = System.nanoTime() - startNs;
        return wanted.firstDirtyOffset() + "\t" + wanted.firstUncleanableOffset() + "\t" + wanted.cleanBytes() + "\t"
                + wanted.cleanableBytes() + "\t" + endOffset + "\t" + elapsedNs;
    }

    private static void settle(KafkaScheduler scheduler) throws InterruptedException {
        CountDownLatch done = new CountDownLatch(1);
        scheduler.schedule("settle", done::countDown, 0L, -1L);
        done.await();
    }

    private static UnifiedLog load(String[] fields, Time time, KafkaScheduler scheduler) {
        Properties configs = new Properties();
        for (String pair : fields[6].split(";")) {
            if (!pair.isEmpty()) {
                configs.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
        }
        UnifiedLog$ logs = UnifiedLog$.MODULE$;
        return logs.apply(
                new File(fields[0]),
                new LogConfig(configs),
                0L,
                0L,
                scheduler,
                new BrokerTopicStats(false),
                time,
                MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(Integer.MAX_VALUE, true),
                PRODUCER_ID_CHECK_INTERVAL_MS,
                new LogDirFailureChannel(10),
                true,
                Option.empty(),
                true,
                logs.apply$default$15(),
                logs.apply$default$16(),
                logs.apply$default$17());
    }
}
