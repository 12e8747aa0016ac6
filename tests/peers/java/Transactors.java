import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers that do what standard input says, a command a line with words between tabs, until
 * it ends. Each is answered {@code ok}, or with the name of the exception and its message. Commands:
 *
 * <pre>
 * new name bootstrap transactionalId timeoutMs
 * begin name
 * send name topic partition value
 * offsets name group topic partition offset
 * commit name
 * abort name
 * close name
 * </pre>
 */
public final class Transactors {
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    private Transactors() {}

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
            obey(words);
            return "ok";
        } catch (ExecutionException failed) {
            return named(failed.getCause());
        } catch (Exception failed) {
            return named(failed);
        }
    }

    private static String named(Throwable failed) {
        return failed.getClass().getSimpleName() + " " + String.valueOf(failed.getMessage()).replaceAll("\\s", " ");
    }

    private static void obey(String[] words) throws Exception {
        KafkaProducer<String, String> producer = PRODUCERS.get(words[1]);
        switch (words[0]) {
            case "new":
                PRODUCERS.put(words[1], made(words[2], words[3], words[4]));
                break;
            case "begin":
                producer.beginTransaction();
                break;
            case "send":
                producer.send(new ProducerRecord<>(words[2], Integer.parseInt(words[3]), null, words[4])).get();
                break;
            case "offsets":
                producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(words[3], Integer.parseInt(words[4])),
                                new OffsetAndMetadata(Long.parseLong(words[5]))),
                        new ConsumerGroupMetadata(words[2]));
                break;
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            case "close":
                PRODUCERS.remove(words[1]).close();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static KafkaProducer<String, String> made(String bootstrap, String id, String timeoutMs) {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "transactional.id", id,
                "transaction.timeout.ms", timeoutMs);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }
}
