import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes numbered records to partition 0 with any client from 0.8.2 on, and prints the offset of each.
 *
 * <p>Arguments: {@code bootstrap topic acks count codec...}; each codec has {@code count} records. Every third key
 * is null.
 */
public final class OldProduce {
    private OldProduce() {}

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        for (int codec = 4; codec < args.length; codec++) {
            produce(args, args[codec], (codec - 4) * count, count);
        }
    }

    private static void produce(String[] args, String codec, int first, int count) throws Exception {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", args[0]);
        configs.put("acks", args[2]);
        configs.put("compression.type", codec);
        configs.put("linger.ms", "20");
        configs.put("retries", "5");
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<byte[], byte[]>(configs, new ByteArraySerializer(), new ByteArraySerializer());
        List<Future<RecordMetadata>> sent = new ArrayList<Future<RecordMetadata>>();
        for (int number = first; number < first + count; number++) {
            byte[] key = number % 3 == 0 ? null : ("key " + number).getBytes("UTF-8");
            byte[] value = ("value " + number).getBytes("UTF-8");
            sent.add(producer.send(new ProducerRecord<byte[], byte[]>(args[1], 0, key, value)));
        }
        for (Future<RecordMetadata> each : sent) {
            System.out.println(each.get().offset());
        }
        producer.close();
    }
}
