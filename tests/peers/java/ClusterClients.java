import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer with acks=all and a consumer of a group. The producer runs until a byte comes on stdin, the consumer
 * until stdin ends. It prints a line for each event: {@code A partition offset value} for an acknowledged record,
 * {@code R partition offset value} for one that was read, {@code E exception} for an error that the application
 * sees, {@code P end} when the producer has ended, {@code end} as the last line.
 *
 * <p>Arguments: {@code bootstrap topic partitions name group millisBetweenRecords}.
 */
public final class ClusterClients {
    private static final AtomicBoolean PRODUCER_ENDS = new AtomicBoolean();
    private static final AtomicBoolean ENDING = new AtomicBoolean();

    private ClusterClients() {}

    public static void main(String[] args) throws Exception {
        Thread producing = new Thread(() -> produce(args));
        Thread consuming = new Thread(() -> consume(args));
        producing.start();
        consuming.start();
        while (System.in.read() >= 0) {
            PRODUCER_ENDS.set(true);
        }
        PRODUCER_ENDS.set(true);
        ENDING.set(true);
        producing.join();
        consuming.join();
        say("end");
    }

    private static void produce(String[] args) {
        Map<String, Object> configs = Map.of("bootstrap.servers", args[0], "acks", "all", "linger.ms", "2",
                "delivery.timeout.ms", "240000", "max.block.ms", "240000");
        int partitions = Integer.parseInt(args[2]);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; !PRODUCER_ENDS.get(); number++) {
                String value = args[3] + "/" + number;
                producer.send(new ProducerRecord<>(args[1], number % partitions, null, value), (where, error) -> {
                    if (error == null) {
                        say("A " + where.partition() + " " + where.offset() + " " + value);
                    } else {
                        say("E " + error);
                    }
                });
                Thread.sleep(Integer.parseInt(args[5]));
            }
        } catch (Exception error) {
            say("E " + error);
        }
        say("P end");
    }

    private static void consume(String[] args) {
        Map<String, Object> configs = new HashMap<>(Map.of("bootstrap.servers", args[0], "group.id", args[4],
                "auto.offset.reset", "earliest", "enable.auto.commit", "false", "session.timeout.ms", "30000",
                "default.api.timeout.ms", "120000"));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (!ENDING.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    say("R " + record.partition() + " " + record.offset() + " " + record.value());
                }
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        } catch (Exception error) {
            say("E " + error);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
