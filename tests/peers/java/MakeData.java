import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/**
 * Fills a Kafka 4.x broker with the data of one fixture, through Kafka's own clients.
 *
 * <p>Arguments: {@code bootstrap story}.
 */
public final class MakeData {
    private static final long FIRST_TIMESTAMP_MS = 1_600_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(200);

    private final String bootstrap;
    private final Random random = new Random(41);

    private MakeData(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        MakeData make = new MakeData(args[0]);
        switch (args[1]) {
            case "codecs":
                make.codecs();
                break;
            case "txn":
                make.transactions();
                break;
            case "compact":
                make.compact();
                break;
            case "groups":
                make.groups();
                break;
            case "remote":
                make.remoteMetadata();
                break;
            case "kraft":
                make.metadata();
                break;
            default:
                throw new IllegalArgumentException("no story " + args[1]);
        }
    }

    // ---- stories

    private void codecs() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = "t-" + codec;
            createTopic(topic, 1, smallSegments());
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec))) {
                sendRecords(producer, topic, 130, 5);
            }
        }
        Map<String, String> appendTime = smallSegments();
        appendTime.put("message.timestamp.type", "LogAppendTime");
        createTopic("t-lat", 1, appendTime);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "zstd"))) {
            sendRecords(producer, "t-lat", 40, 4);
        }
        createTopic("t-headers", 1, smallSegments());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("enable.idempotence", "false"))) {
            for (ProducerRecord<byte[], byte[]> record : oddRecords("t-headers")) {
                producer.send(record);
            }
        }
    }

    private void transactions() throws Exception {
        createTopic("t-txn", 1, smallSegments());
        createTopic("t-open", 1, smallSegments());
        KafkaProducer<byte[], byte[]> first = transactional("tx-first");
        KafkaProducer<byte[], byte[]> second = transactional("tx-second");
        for (int round = 0; round < 12; round++) {
            first.beginTransaction();
            second.beginTransaction();
            sendRecords(first, "t-txn", 4 + round, 3);
            sendRecords(second, "t-txn", 3, 2);
            if (round % 4 == 3) {
                first.abortTransaction();
            } else {
                first.commitTransaction();
            }
            if (round % 3 == 1) {
                second.abortTransaction();
            } else {
                second.commitTransaction();
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", "tx-group"))) {
            consumer.subscribe(List.of("t-txn"));
            pollSome(consumer, 10);
            first.beginTransaction();
            first.sendOffsetsToTransaction(
                    Map.of(new TopicPartition("t-txn", 0), new OffsetAndMetadata(10, "metadata ä")),
                    consumer.groupMetadata());
            first.commitTransaction();
        }
        first.beginTransaction();
        first.commitTransaction();
        first.close();
        second.close();
        KafkaProducer<byte[], byte[]> open = transactional("tx-open");
        open.beginTransaction();
        sendRecords(open, "t-open", 5, 5);
        // The process ends without closing this producer: its transaction stays open in the log.
        Runtime.getRuntime().halt(0);
    }

    private void compact() throws Exception {
        for (String codec : List.of("none", "lz4", "zstd")) {
            Map<String, String> configs = smallSegments();
            configs.put("cleanup.policy", "compact");
            configs.put("min.cleanable.dirty.ratio", "0.01");
            configs.put("delete.retention.ms", "100");
            configs.put("file.delete.delay.ms", "100");
            createTopic("c-" + codec, 1, configs);
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec))) {
                for (int i = 0; i < 600; i++) {
                    byte[] key = bytes("key-" + random.nextInt(40));
                    byte[] value = i % 9 == 8 ? null : payload(i);
                    producer.send(new ProducerRecord<>("c-" + codec, null, FIRST_TIMESTAMP_MS + i, key, value));
                    if (i % 6 == 5) {
                        producer.flush();
                    }
                }
            }
        }
    }

    private void groups() throws Exception {
        createTopic("g-in", 2, smallSegments());
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            sendRecords(producer, "g-in", 60, 6);
        }
        useGroup(Map.of("group.id", "classic-group", "client.id", "klient-ä"), "classic");
        useGroup(Map.of("group.id", "classic-static", "group.instance.id", "instance-1"), "classic");
        useGroup(Map.of("group.id", "classic-deleted"), "classic");
        useGroup(Map.of("group.id", "consumer-group", "group.remote.assignor", "range"), "consumer");
        useGroup(Map.of("group.id", "consumer-static", "group.instance.id", "instance-2"), "consumer");
        useGroup(Map.of("group.id", "группа"), "consumer");
        try (KafkaConsumer<byte[], byte[]> consumer =
                consumer(Map.of("group.id", "consumer-regex", "group.protocol", "consumer"))) {
            consumer.subscribe(new SubscriptionPattern("g-.*"));
            pollSome(consumer, 1);
            consumer.commitSync();
        }
        try (Admin admin = admin()) {
            admin.deleteConsumerGroupOffsets("classic-group", Set.of(new TopicPartition("g-in", 0))).all().get();
            admin.deleteConsumerGroups(Set.of("classic-deleted")).all().get();
        }
        useShareGroup();
    }

    private void useShareGroup() throws Exception {
        alterConfig(ConfigResource.Type.GROUP, "share-group", "share.auto.offset.reset", "earliest");
        Map<String, Object> configs = new HashMap<>(clientConfigs());
        configs.put("group.id", "share-group");
        configs.put("key.deserializer", ByteArrayDeserializer.class.getName());
        configs.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(configs)) {
            consumer.subscribe(List.of("g-in"));
            int seen = 0;
            for (int tries = 0; tries < 100 && seen < 20; tries++) {
                seen += consumer.poll(POLL).count();
            }
            consumer.commitSync();
        }
    }

    /** What a broker with tiered storage writes: upload started and finished, deletion of the segment and partition. */
    private void remoteMetadata() throws Exception {
        String topic = "__remote_log_metadata";
        createTopic(topic, 1, smallSegments());
        TopicIdPartition partition = new TopicIdPartition(new Uuid(1, 2), new TopicPartition("tiered", 3));
        RemoteLogSegmentId id = new RemoteLogSegmentId(partition, new Uuid(3, 4));
        RemoteLogSegmentMetadata started = new RemoteLogSegmentMetadata(id, 100, 199, FIRST_TIMESTAMP_MS, 1,
                FIRST_TIMESTAMP_MS + 1, 4096, Map.of(0, 0L, 2, 150L));
        List<RemoteLogMetadata> story = List.of(
                started,
                new RemoteLogSegmentMetadataUpdate(id, FIRST_TIMESTAMP_MS + 2,
                        Optional.of(new RemoteLogSegmentMetadata.CustomMetadata(bytes("custom"))),
                        RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1),
                new RemotePartitionDeleteMetadata(partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
                        FIRST_TIMESTAMP_MS + 3, 1),
                new RemoteLogSegmentMetadataUpdate(id, FIRST_TIMESTAMP_MS + 4, Optional.empty(),
                        RemoteLogSegmentState.DELETE_SEGMENT_STARTED, 1),
                new RemoteLogSegmentMetadataUpdate(id, FIRST_TIMESTAMP_MS + 5, Optional.empty(),
                        RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, 1),
                new RemotePartitionDeleteMetadata(partition, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED,
                        FIRST_TIMESTAMP_MS + 6, 1));
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (RemoteLogMetadata metadata : story) {
                byte[] value = serde.serialize(metadata);
                producer.send(new ProducerRecord<>(topic, null, metadata.eventTimestampMs(), null, value));
            }
        }
    }

    private void metadata() throws Exception {
        try (Admin admin = admin()) {
            createTopic("m-one", 1, smallSegments());
            createTopic("m-many", 12, smallSegments());
            createTopic("m-gone", 3, smallSegments());
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
                sendRecords(producer, "m-one", 10, 5);
            }
            admin.createPartitions(Map.of("m-many", NewPartitions.increaseTo(14))).all().get();
            admin.deleteTopics(List.of("m-gone")).all().get();
            for (int i = 0; i < 30; i++) {
                alterConfig(ConfigResource.Type.TOPIC, "m-one", "retention.ms", String.valueOf(3_600_000 + i));
            }
            alterConfig(ConfigResource.Type.BROKER, "", "log.cleaner.threads", "2");
            alterConfig(ConfigResource.Type.BROKER, "1", "num.io.threads", "4");
            alterConfig(ConfigResource.Type.GROUP, "a-group", "consumer.session.timeout.ms", "50000");
            admin.alterClientQuotas(List.of(
                    new ClientQuotaAlteration(new ClientQuotaEntity(quotaEntity("user", "Zoë", "client-id", null)),
                            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1_048_576.0))),
                    new ClientQuotaAlteration(new ClientQuotaEntity(quotaEntity("ip", "127.0.0.9")),
                            List.of(new ClientQuotaAlteration.Op("connection_creation_rate", 10.0))))).all().get();
            admin.alterUserScramCredentials(List.of(
                    new UserScramCredentialUpsertion("alice",
                            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"),
                    new UserScramCredentialUpsertion("bob",
                            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), "secret"))).all().get();
            admin.alterUserScramCredentials(List.of(
                    new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))).all().get();
            AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "m-", PatternType.PREFIXED),
                    new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
            AclBinding denied = new AclBinding(new ResourcePattern(ResourceType.GROUP, "*", PatternType.LITERAL),
                    new AccessControlEntry("User:bob", "127.0.0.1", AclOperation.ALL, AclPermissionType.DENY));
            admin.createAcls(List.of(acl, denied)).all().get();
            admin.deleteAcls(List.of(denied.toFilter())).all().get();
        }
    }

    // ---- clients

    private Map<String, Object> clientConfigs() {
        return Map.of("bootstrap.servers", bootstrap);
    }

    private Admin admin() {
        return Admin.create(clientConfigs());
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> overrides) {
        Map<String, Object> configs = new HashMap<>(clientConfigs());
        configs.put("linger.ms", "500");
        configs.putAll(overrides);
        return new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaProducer<byte[], byte[]> transactional(String transactionalId) {
        KafkaProducer<byte[], byte[]> producer =
                producer(Map.of("transactional.id", transactionalId, "transaction.timeout.ms", "800000"));
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, String> overrides) {
        Map<String, Object> configs = new HashMap<>(clientConfigs());
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", "false");
        configs.put("max.poll.records", "50");
        configs.putAll(overrides);
        return new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void createTopic(String name, int partitions, Map<String, String> configs) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        }
    }

    private void alterConfig(ConfigResource.Type type, String name, String key, String value) throws Exception {
        try (Admin admin = admin()) {
            Collection<AlterConfigOp> ops =
                    List.of(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, name), ops)).all().get();
        }
    }

    /** Since Kafka 4.0 segment.bytes is at least 1 MiB; this config, meant for Kafka's own tests, is not bounded. */
    private static Map<String, String> smallSegments() {
        return new HashMap<>(Map.of("internal.segment.bytes", "6000", "segment.index.bytes", "16384",
                "index.interval.bytes", "1024"));
    }

    private void useGroup(Map<String, String> configs, String protocol) {
        Map<String, String> all = new HashMap<>(configs);
        all.put("group.protocol", protocol);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(all)) {
            consumer.subscribe(List.of("g-in"));
            pollSome(consumer, 10);
            consumer.commitSync();
            consumer.commitSync(Map.of(new TopicPartition("g-in", 0), new OffsetAndMetadata(7, "seven ✓")));
        }
    }

    private static void pollSome(KafkaConsumer<byte[], byte[]> consumer, int wanted) {
        int seen = 0;
        for (int tries = 0; tries < 150 && seen < wanted; tries++) {
            seen += consumer.poll(POLL).count();
        }
        if (seen < wanted) {
            throw new IllegalStateException("only " + seen + " records after 30 s");
        }
    }

    // ---- records

    private void sendRecords(KafkaProducer<byte[], byte[]> producer, String topic, int count, int perBatch) {
        for (int i = 0; i < count; i++) {
            byte[] key = i % 11 == 10 ? null : bytes("key-" + random.nextInt(1000));
            byte[] value = i % 13 == 12 ? null : payload(i);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, null,
                    FIRST_TIMESTAMP_MS + i * 1000L - random.nextInt(1500), key, value);
            if (i % 4 == 1) {
                record.headers().add("trace", bytes("id-" + random.nextInt(100))).add("h", null);
            }
            producer.send(record);
            if (i % perBatch == perBatch - 1) {
                producer.flush();
            }
        }
        producer.flush();
    }

    private byte[] payload(int i) {
        switch (i % 3) {
            case 0:
                return bytes("{\"id\": " + i + ", \"text\": \"offset leader epoch 日本 Ω " + random.nextLong() + "\", \"pad\": \""
                        + "x".repeat(random.nextInt(80)) + "\"}");
            case 1:
                byte[] binary = new byte[random.nextInt(160)];
                random.nextBytes(binary);
                return binary;
            default:
                return bytes("segment index " + "replica ".repeat(random.nextInt(12)) + i);
        }
    }

    private List<ProducerRecord<byte[], byte[]>> oddRecords(String topic) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        records.add(new ProducerRecord<byte[], byte[]>(topic, null, Long.valueOf(FIRST_TIMESTAMP_MS), null, null));
        records.add(new ProducerRecord<>(topic, null, FIRST_TIMESTAMP_MS, new byte[0], new byte[0]));
        records.add(new ProducerRecord<byte[], byte[]>(topic, null, Long.valueOf(0), bytes("k"), (byte[]) null));
        records.add(new ProducerRecord<>(topic, null, FIRST_TIMESTAMP_MS + 5, bytes("long"), new byte[5000]));
        ProducerRecord<byte[], byte[]> many =
                new ProducerRecord<>(topic, null, FIRST_TIMESTAMP_MS + 1, bytes("many"), bytes("headers"));
        for (int i = 0; i < 70; i++) {
            many.headers().add("header-" + i % 7, i % 5 == 0 ? null : bytes("v".repeat(i)));
        }
        records.add(many);
        ProducerRecord<byte[], byte[]> named =
                new ProducerRecord<>(topic, null, FIRST_TIMESTAMP_MS + 2, bytes("ключ\n"), bytes("line\nbreak\ttab\u0000nul"));
        named.headers().add("", new byte[0]).add("näme,with:odd\"chars", bytes("ü"));
        records.add(named);
        return records;
    }

    private static Map<String, String> quotaEntity(String... pairs) {
        Map<String, String> entity = new HashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            entity.put(pairs[i], pairs[i + 1]);
        }
        return entity;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
