import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads in a group from its committed offsets on, with any client from 0.9 on: prints
 * {@code offset TAB key TAB value} of so many records, commits what it printed, and leaves the group.
 *
 * <p>Arguments: {@code bootstrap topic group count}.
 */
public final class OldConsume {
    private static final long TIMEOUT_MS = 60_000;

    private OldConsume() {}

    public static void main(String[] args) throws Exception {
        int left = Integer.parseInt(args[3]);
        Properties configs = new Properties();
        configs.put("bootstrap.servers", args[0]);
        configs.put("group.id", args[2]);
        configs.put("enable.auto.commit", "false");
        configs.put("auto.offset.reset", "earliest");
        // 0.9 does not know the first limit, and takes it for a mistake.
        configs.put("max.poll.records", "15");
        configs.put("max.partition.fetch.bytes", "4096");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<byte[], byte[]>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(Arrays.asList(args[1]));
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (left > 0 && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(500)) {
                System.out.println(record.offset() + "\t" + text(record.key()) + "\t" + text(record.value()));
                left--;
            }
            consumer.commitSync();
        }
        consumer.close();
    }

    private static String text(byte[] data) throws Exception {
        return data == null ? "NULL" : new String(data, "UTF-8");
    }
}
