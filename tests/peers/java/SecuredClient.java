import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes two records as somebody who logs in, and reads the first one back. A line of standard input is a topic,
 * how many milliseconds pass between the records, and configs of a client ({@code name=value}), with tabs between
 * them. It is answered {@code read VALUE}, or {@code refused} with the exception's name and message.
 */
public final class SecuredClient {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private SecuredClient() {}

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split("\t")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words) {
        try {
            return "read\t" + writtenAndRead(words[0], Long.parseLong(words[1]), configs(words));
        } catch (ExecutionException failed) {
            return refused(failed.getCause());
        } catch (Exception failed) {
            return refused(failed);
        }
    }

    private static String refused(Throwable why) {
        return "refused\t" + why.getClass().getSimpleName() + " "
                + String.valueOf(why.getMessage()).replaceAll("\\s", " ");
    }

    private static Map<String, Object> configs(String[] words) {
        Map<String, Object> configs = new HashMap<>();
        for (int number = 2; number < words.length; number++) {
            String[] parts = words[number].split("=", 2);
            configs.put(parts[0], parts[1]);
        }
        return configs;
    }

    private static String writtenAndRead(String topic, long pauseMs, Map<String, Object> configs) throws Exception {
        StringSerializer serializer = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(configs, serializer, serializer)) {
            producer.send(new ProducerRecord<>(topic, 0, null, "of Java")).get();
            Thread.sleep(pauseMs);
            producer.send(new ProducerRecord<>(topic, 0, null, "in the next session")).get();
        }
        StringDeserializer deserializer = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(configs, deserializer, deserializer)) {
            List<TopicPartition> partition = List.of(new TopicPartition(topic, 0));
            consumer.assign(partition);
            consumer.seekToBeginning(partition);
            ConsumerRecords<String, String> records = consumer.poll(LIMIT);
            if (records.isEmpty()) {
                throw new TimeoutException("nothing was read");
            }
            return records.iterator().next().value();
        }
    }
}
