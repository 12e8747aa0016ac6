import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Runs any number of consumers that are members of groups. Fields of a line are separated by tabs.
 *
 * <p>Lines of stdin: {@code join ID TOPIC CONFIG=VALUE...} subscribes a new consumer, {@code close ID} lets it
 * commit what it has read and close. At the end of stdin the program ends.
 *
 * <p>Lines of stdout: {@code assigned ID 0,1,2} (the partitions that it holds now), {@code read ID VALUE},
 * {@code closed ID}, {@code failed ID EXCEPTION}.
 */
public final class GroupMembers {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final int COMMIT_TRIES = 100;
    private static final Map<String, GroupMembers> MEMBERS = new HashMap<>();

    private final String id;
    private volatile boolean closing;
    private Set<Integer> assigned = Set.of();

    private GroupMembers(String id) {
        this.id = id;
    }

    public static void main(String[] args) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t");
            if (fields[0].equals("join")) {
                GroupMembers member = new GroupMembers(fields[1]);
                MEMBERS.put(fields[1], member);
                Thread thread = new Thread(() -> member.run(fields));
                thread.setDaemon(true);
                thread.start();
            } else {
                MEMBERS.get(fields[1]).closing = true;
            }
        }
    }

    private void run(String[] fields) {
        Map<String, Object> configs = new HashMap<>();
        for (int i = 3; i < fields.length; i++) {
            int equals = fields[i].indexOf('=');
            configs.put(fields[i].substring(0, equals), fields[i].substring(equals + 1));
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(fields[2]));
            while (!closing) {
                poll(consumer);
            }
            commit(consumer);
        } catch (RuntimeException error) {
            say("failed", error.toString());
            return;
        }
        say("closed");
    }

    private void poll(KafkaConsumer<String, String> consumer) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
            say("read", record.value());
        }
        Set<Integer> held = new TreeSet<>();
        for (TopicPartition partition : consumer.assignment()) {
            held.add(partition.partition());
        }
        if (!held.equals(assigned)) {
            assigned = held;
            List<String> numbers = new ArrayList<>();
            held.forEach(number -> numbers.add(number.toString()));
            say("assigned", String.join(",", numbers));
        }
    }

    /** Commits. A member that must join again does so in poll. */
    private void commit(KafkaConsumer<String, String> consumer) {
        for (int i = 0; ; i++) {
            try {
                consumer.commitSync();
                return;
            } catch (RebalanceInProgressException | CommitFailedException | RetriableException error) {
                if (i == COMMIT_TRIES) {
                    throw error;
                }
                poll(consumer);
            }
        }
    }

    private void say(String what, String... more) {
        StringBuilder line = new StringBuilder(what).append('\t').append(id);
        for (String each : more) {
            line.append('\t').append(each.replaceAll("[\t\n]", " "));
        }
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
