import java.io.File;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Rebuilds the indexes of one segment the way a Kafka 3.9 broker does after an unclean stop: LogSegment.recover.
 *
 * <p>Arguments: {@code partitionDirectory baseOffset [indexIntervalBytes [segmentIndexBytes]]}. Prints the number of
 * bytes that recovery cut off and the milliseconds that recover took inside this JVM.
 */
public final class RecoverSegment {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_ID_EXPIRATION_MS = 86_400_000;

    private RecoverSegment() {}

    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        long baseOffset = Long.parseLong(args[1]);
        Properties topicConfigs = new Properties();
        if (args.length > 2) {
            topicConfigs.put("index.interval.bytes", args[2]);
        }
        if (args.length > 3) {
            topicConfigs.put("segment.index.bytes", args[3]);
        }
        String name = directory.getName();
        int dash = name.lastIndexOf('-');
        TopicPartition partition =
                new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
        ProducerStateManager producers = new ProducerStateManager(partition, directory, MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(PRODUCER_ID_EXPIRATION_MS, true), Time.SYSTEM);
        LogSegment segment =
                LogSegment.open(directory, baseOffset, new LogConfig(topicConfigs), Time.SYSTEM, 0, false);
        long startNs = System.nanoTime();
        int truncatedBytes = segment.recover(producers, Optional.empty());
        segment.offsetIndex().trimToValidSize();
        segment.timeIndex().trimToValidSize();
        long elapsedMs = (System.nanoTime() - startNs) / 1_000_000;
        segment.close();
        System.out.println("truncatedBytes=" + truncatedBytes + " recoverMs=" + elapsedMs);
    }
}
