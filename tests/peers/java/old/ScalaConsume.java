import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * Reads with the consumer in Scala that finds brokers and other members in ZooKeeper: prints
 * {@code offset TAB key TAB value} of so many records, commits what it printed, and leaves the group.
 *
 * <p>Arguments: {@code zookeeper topic group count storage}; {@code storage} of offsets is "zookeeper" or "kafka".
 */
public final class ScalaConsume {
    private ScalaConsume() {}

    public static void main(String[] args) throws Exception {
        Properties configs = new Properties();
        configs.put("zookeeper.connect", args[0]);
        configs.put("group.id", args[2]);
        configs.put("auto.offset.reset", "smallest");
        configs.put("auto.commit.enable", "false");
        configs.put("offsets.storage", args[4]);
        configs.put("dual.commit.enabled", "false");
        configs.put("consumer.timeout.ms", "60000");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(configs));
        Map<String, List<KafkaStream<byte[], byte[]>>> streams =
                connector.createMessageStreams(Collections.singletonMap(args[1], 1));
        ConsumerIterator<byte[], byte[]> records = streams.get(args[1]).get(0).iterator();
        for (int left = Integer.parseInt(args[3]); left > 0 && records.hasNext(); left--) {
            MessageAndMetadata<byte[], byte[]> record = records.next();
            System.out.println(record.offset() + "\t" + text(record.key()) + "\t" + text(record.message()));
        }
        connector.commitOffsets();
        connector.shutdown();
    }

    private static String text(byte[] data) throws Exception {
        return data == null ? "NULL" : new String(data, "UTF-8");
    }
}
