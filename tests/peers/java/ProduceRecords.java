import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records of every shape with a real producer, a topic and a codec at a time, to partition 0: record i
 * has no key where 3 divides i, no value where i leaves 1, a header with the number and one without a value,
 * and {@code timestamp + i}. It says for each topic {@code topic first last}, the offsets, or
 * {@code topic NameOfTheException}.
 *
 * <p>Arguments: {@code bootstrap acks count valueBytes timestamp (topic codec)...}.
 */
public final class ProduceRecords {
    private ProduceRecords() {}

    public static void main(String[] args) throws InterruptedException {
        for (int i = 5; i < args.length; i += 2) {
            Map<String, Object> configs = new HashMap<>(Map.of("bootstrap.servers", args[0], "acks", args[1],
                    "compression.type", args[i + 1], "linger.ms", "20", "max.request.size", "50000000"));
            configs.put("enable.idempotence", args[1].equals("all"));
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
                String outcome = write(producer, args[i], Integer.parseInt(args[2]), Integer.parseInt(args[3]),
                        Long.parseLong(args[4]));
                System.out.println(args[i] + " " + outcome);
            }
        }
    }

    private static String write(KafkaProducer<byte[], byte[]> producer, String topic, int count, int size,
            long timestamp) throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] key = i % 3 == 0 ? null : ("key " + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = i % 3 == 1 ? null : "v".repeat(size).getBytes(StandardCharsets.UTF_8);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, timestamp + i, key, value);
            record.headers().add("number", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
            record.headers().add("none", null);
            sent.add(producer.send(record));
        }
        try {
            return sent.get(0).get().offset() + " " + sent.get(count - 1).get().offset();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}
