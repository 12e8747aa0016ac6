import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.OptionalLong;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/**
 * Says what Kafka's own reader (FileRecords) finds in partition directories, as the JSON Lines that
 * fixtures/README.md describes.
 *
 * <p>Arguments: any number of triples {@code partitionDirectory batches.jsonl records.jsonl}.
 */
public final class LogOracle {
    /** Longer keys and values are written as length and SHA-256, to keep the fixtures small. */
    private static final int MAX_INLINE_BYTES = 4096;

    private LogOracle() {}

    public static void main(String[] args) throws IOException {
        if (args.length == 0 || args.length % 3 != 0) {
            System.err.println("usage: LogOracle (partitionDirectory batches.jsonl records.jsonl)...");
            System.exit(2);
        }
        for (int i = 0; i < args.length; i += 3) {
            describe(new File(args[i]), Paths.get(args[i + 1]), Paths.get(args[i + 2]));
        }
    }

    private static void describe(File directory, Path batchesPath, Path recordsPath) throws IOException {
        String[] names = directory.list((parent, name) -> holdsBatches(name));
        if (names == null) {
            throw new IOException(directory + " is not a directory");
        }
        Arrays.sort(names);
        try (BufferedWriter batches = Files.newBufferedWriter(batchesPath, StandardCharsets.UTF_8);
                BufferedWriter records = Files.newBufferedWriter(recordsPath, StandardCharsets.UTF_8)) {
            for (String name : names) {
                describeFile(new File(directory, name), batches, records);
            }
        }
    }

    private static boolean holdsBatches(String name) {
        return name.endsWith(".log") || name.endsWith(".log.deleted") || name.endsWith(".log.swap")
                || name.endsWith(".cleaned") || name.endsWith(".checkpoint");
    }

    private static void describeFile(File file, BufferedWriter batches, BufferedWriter records) throws IOException {
        String name = file.getName();
        long positionBytes = 0;
        try (FileRecords log = FileRecords.open(file, false)) {
            try {
                for (RecordBatch batch : log.batches()) {
                    batches.write(batchLine(name, positionBytes, batch));
                    batches.newLine();
                    describeRecords(name, positionBytes, batch, records);
                    positionBytes += batch.sizeInBytes();
                }
                batches.write(new Json().put("file", name).put("fileSize", file.length())
                        .put("endOfLastBatch", positionBytes).toString());
            } catch (RuntimeException scanError) {
                batches.write(new Json().put("file", name).put("scanError", scanError.toString())
                        .put("endOfLastBatch", positionBytes).put("fileSize", file.length()).toString());
            }
            batches.newLine();
        }
    }

    private static String batchLine(String file, long positionBytes, RecordBatch batch) {
        Json json = new Json().put("file", file).put("position", positionBytes).put("size", batch.sizeInBytes())
                .put("baseOffset", batch.baseOffset()).put("lastOffset", batch.lastOffset())
                .put("nextOffset", batch.nextOffset()).put("magic", batch.magic())
                .put("count", batch.countOrNull()).put("maxTimestamp", batch.maxTimestamp())
                .put("timestampType", batch.timestampType().name).put("codec", batch.compressionType().name)
                .put("checksum", batch.checksum()).put("valid", batch.isValid());
        if (!batch.isValid()) {
            json.put("error", reasonOfInvalidity(batch));
        }
        OptionalLong deleteHorizonMs = batch.deleteHorizonMs();
        return json.put("producerId", batch.producerId()).put("producerEpoch", batch.producerEpoch())
                .put("baseSequence", batch.baseSequence()).put("lastSequence", batch.lastSequence())
                .put("partitionLeaderEpoch", batch.partitionLeaderEpoch())
                .put("isTransactional", batch.isTransactional()).put("isControl", batch.isControlBatch())
                .put("deleteHorizonMs", deleteHorizonMs.isPresent() ? deleteHorizonMs.getAsLong() : null)
                .toString();
    }

    private static String reasonOfInvalidity(RecordBatch batch) {
        try {
            batch.ensureValid();
            return "isValid and ensureValid disagree";
        } catch (RuntimeException invalid) {
            return invalid.toString();
        }
    }

    private static void describeRecords(String file, long positionBytes, RecordBatch batch, BufferedWriter out)
            throws IOException {
        try {
            for (Record record : batch) {
                out.write(recordLine(file, positionBytes, batch, record));
                out.newLine();
            }
        } catch (RuntimeException iterationError) {
            out.write(new Json().put("file", file).put("batchPosition", positionBytes)
                    .put("iterationError", iterationError.toString()).toString());
            out.newLine();
        }
    }

    private static String recordLine(String file, long positionBytes, RecordBatch batch, Record record) {
        Json json = new Json().put("file", file).put("offset", record.offset())
                .put("timestamp", record.timestamp()).put("timestampType", batch.timestampType().name);
        putBytes(json, "key", record.hasKey() ? bytes(record.key()) : null);
        putBytes(json, "value", record.hasValue() ? bytes(record.value()) : null);
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            byte[] key = header.key().getBytes(StandardCharsets.UTF_8);
            headers.add("[" + Json.quote(base64(key)) + ","
                    + (header.value() == null ? "null" : Json.quote(base64(header.value()))) + "]");
        }
        json.putRaw("headers", "[" + String.join(",", headers) + "]").put("magic", batch.magic())
                .put("codec", batch.compressionType().name).put("isControl", batch.isControlBatch())
                .put("isTransactional", batch.isTransactional()).put("producerId", batch.producerId())
                .put("producerEpoch", batch.producerEpoch()).put("sequence", record.sequence())
                .put("leaderEpoch", batch.partitionLeaderEpoch()).put("batchBaseOffset", batch.baseOffset())
                .put("batchPosition", positionBytes).put("recordSize", record.sizeInBytes());
        if (batch.isControlBatch()) {
            ControlRecordType type = ControlRecordType.parse(record.key());
            json.put("controlType", type.name());
            if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT) {
                json.put("coordinatorEpoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
            }
        }
        return json.toString();
    }

    private static void putBytes(Json json, String name, byte[] value) {
        if (value != null && value.length > MAX_INLINE_BYTES) {
            json.put(name + "_len", value.length).put(name + "_sha256", sha256(value));
        } else {
            json.put(name, value == null ? null : base64(value));
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static String base64(byte[] value) {
        return Base64.getEncoder().encodeToString(value);
    }

    private static String sha256(byte[] value) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte b : MessageDigest.getInstance("SHA-256").digest(value)) {
                hex.append(String.format("%02x", b));
            }
            return hex.toString();
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
