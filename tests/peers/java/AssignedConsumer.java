import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads whole topics, all partitions assigned, with the consumer's defaults, and prints what it read:
 * {@code records valueBytes milliseconds}. ConsumerPerformance does the same in a group.
 *
 * <p>Arguments: {@code bootstrap topic...}.
 */
public final class AssignedConsumer {
    private static final Duration POLL = Duration.ofMillis(500);

    private AssignedConsumer() {}

    public static void main(String[] args) {
        Map<String, Object> configs = Map.of("bootstrap.servers", args[0], "enable.auto.commit", "false",
                "auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (int i = 1; i < args.length; i++) {
                consume(consumer, args[i]);
            }
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(topic)) {
            partitions.add(new TopicPartition(topic, info.partition()));
        }
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        long left = 0;
        for (TopicPartition partition : partitions) {
            left += consumer.endOffsets(partitions).get(partition) - consumer.position(partition);
        }
        long start = System.nanoTime();
        long records = 0;
        long bytes = 0;
        while (records < left) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                records++;
                bytes += record.value().length;
            }
        }
        System.out.println(records + " " + bytes + " " + (System.nanoTime() - start) / 1_000_000);
    }
}
