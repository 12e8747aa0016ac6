import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Says what a real consumer gets from one partition, from its beginning to its end, as the JSON Lines that
 * fixtures/README.md describes ({@code consumer.<isolation>.jsonl}).
 *
 * <p>Arguments: {@code bootstrap isolation (topic partition file)...}.
 */
public final class Consume {
    private static final Duration POLL = Duration.ofMillis(200);

    private Consume() {}

    public static void main(String[] args) throws IOException {
        Map<String, Object> configs = Map.of("bootstrap.servers", args[0], "isolation.level", args[1],
                "auto.offset.reset", "none", "enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (int i = 2; i < args.length; i += 3) {
                consume(consumer, new TopicPartition(args[i], Integer.parseInt(args[i + 1])), args[i + 2]);
            }
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, String file)
            throws IOException {
        List<TopicPartition> one = List.of(partition);
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(file), StandardCharsets.UTF_8)) {
            consumer.assign(one);
            consumer.seekToBeginning(one);
            long begin = consumer.beginningOffsets(one).get(partition);
            long end = consumer.endOffsets(one).get(partition);
            while (consumer.position(partition) < end) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    out.write(line(record));
                    out.newLine();
                }
            }
            out.write(new Json().put("beginningOffset", begin).put("endOffset", end)
                    .put("position", consumer.position(partition)).toString());
            out.newLine();
        }
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add("[" + Json.quote(base64(header.key().getBytes(StandardCharsets.UTF_8))) + ","
                    + (header.value() == null ? "null" : Json.quote(base64(header.value()))) + "]");
        }
        return new Json().put("offset", record.offset()).put("timestamp", record.timestamp())
                .put("timestampType", record.timestampType().name)
                .put("key", record.key() == null ? null : base64(record.key()))
                .put("value", record.value() == null ? null : base64(record.value()))
                .putRaw("headers", "[" + String.join(",", headers) + "]")
                .put("leaderEpoch", record.leaderEpoch().isPresent() ? record.leaderEpoch().get() : null).toString();
    }

    private static String base64(byte[] value) {
        return Base64.getEncoder().encodeToString(value);
    }
}
