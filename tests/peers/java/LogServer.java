import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import kafka.log.UnifiedLog;
import kafka.log.UnifiedLog$;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One log of a Kafka 3.9 broker, done to what the requests say: a line each on stdin, fields between tabs, the first of
 * them the wall clock in ms and the second the verb. Each is answered by a line on stdout: {@code ok TAB ...} or {@code
 * error TAB name of the error code TAB exception}. The end of stdin ends the server.
 */
public final class LogServer {
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_ID_CHECK_INTERVAL_MS = Integer.MAX_VALUE;

    private final KafkaScheduler scheduler = new KafkaScheduler(1);
    private final SetTime time = new SetTime();
    private UnifiedLog log;

    private LogServer() {
        scheduler.startup();
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LogServer server = new LogServer();
        String request;
        while ((request = requests.readLine()) != null) {
            answers.println(server.answer(request.split("\t", -1)));
        }
        // Kafka's statistics keep threads of their own alive.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] fields) {
        try {
            time.nowMs = Long.parseLong(fields[0]);
            return "ok\t" + done(fields);
        } catch (RecordValidationException refused) {
            StringBuilder indexes = new StringBuilder();
            refused.recordErrors().forEach(error -> indexes.append(error.batchIndex).append(' '));
            return error(refused.invalidException()) + "\t" + indexes.toString().trim();
        } catch (Exception refused) {
            return error(refused) + "\t";
        } finally {
            settle();
        }
    }

    private static String error(Throwable refused) {
        return "error\t" + Errors.forException(refused) + "\t" + refused.toString().replace('\n', ' ').replace('\t', ' ');
    }

    private String done(String[] fields) throws Exception {
        switch (fields[1]) {
            case "open":
                open(fields);
                return state();
            case "configure":
                log.updateConfig(config(fields[2]));
                return "";
            case "leader":
                return appended(log.appendAsLeader(records(fields[4]), Integer.parseInt(fields[2]),
                        AppendOrigin.valueOf(fields[3]), MetadataVersion.latestProduction(), RequestLocal.NoCaching(),
                        VerificationGuard.SENTINEL));
            case "follower":
                return appended(log.appendAsFollower(records(fields[3]), Integer.parseInt(fields[2])));
            case "watermark":
                return Long.toString(log.updateHighWatermark(Long.parseLong(fields[2])));
            case "epoch":
                log.maybeAssignEpochStartOffset(Integer.parseInt(fields[2]), Long.parseLong(fields[3]));
                return "";
            case "epochEnd":
                return epochEnd(Integer.parseInt(fields[2]));
            case "truncate":
                return Boolean.toString(log.truncateTo(Long.parseLong(fields[2])));
            case "restart":
                log.truncateFullyAndStartAt(Long.parseLong(fields[2]), Option.empty());
                return "";
            case "start":
                return Boolean.toString(log.maybeIncrementLogStartOffset(Long.parseLong(fields[2]),
                        LogStartOffsetIncrementReason.ClientRecordDeletion));
            case "retain":
                return Integer.toString(log.deleteOldSegments());
            case "roll":
                return Long.toString(log.roll(Option.empty()).baseOffset());
            case "flush":
                log.flush(true);
                return "";
            case "expire":
                log.removeExpiredProducers(time.nowMs);
                return "";
            case "read":
                return read(Long.parseLong(fields[2]), Integer.parseInt(fields[3]), fields[4], fields[5]);
            case "time":
                return byTime(Long.parseLong(fields[2]));
            case "state":
                return state();
            case "close":
                log.close();
                return "";
            default:
                throw new IllegalArgumentException(fields[1]);
        }
    }

    private void open(String[] fields) {
        UnifiedLog$ logs = UnifiedLog$.MODULE$;
        log = logs.apply(new File(fields[2]), config(fields[3]), Long.parseLong(fields[4]), Long.parseLong(fields[5]),
                scheduler, new BrokerTopicStats(false), time, MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(Integer.parseInt(fields[7]), false), PRODUCER_ID_CHECK_INTERVAL_MS,
                new LogDirFailureChannel(10), Boolean.parseBoolean(fields[6]), Option.empty(), true,
                logs.apply$default$15(), logs.apply$default$16(), logs.apply$default$17());
    }

    private static LogConfig config(String pairs) {
        Properties configs = new Properties();
        for (String pair : pairs.split(";")) {
            if (!pair.isEmpty()) {
                configs.put(pair.split("=", 2)[0], pair.split("=", 2)[1]);
            }
        }
        return new LogConfig(configs);
    }

    private static MemoryRecords records(String base64) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(base64)));
    }

    private static String appended(LogAppendInfo info) {
        return info.firstOffset() + " " + info.lastOffset() + " " + info.logAppendTime() + " " + info.logStartOffset();
    }

    private String read(long offset, int maxBytes, String isolation, String atLeastOne) {
        FetchDataInfo read = log.read(offset, maxBytes, FetchIsolation.valueOf(isolation),
                Boolean.parseBoolean(atLeastOne));
        // A broker makes nothing of a first batch that is cut.
        if (read.records.sizeInBytes() == 0 || read.firstEntryIncomplete) {
            return "";
        }
        StringBuilder said = new StringBuilder();
        said.append(read.fetchOffsetMetadata.segmentBaseOffset).append(' ')
                .append(read.fetchOffsetMetadata.relativePositionInSegment).append(' ')
                .append(read.records.sizeInBytes());
        read.abortedTransactions.ifPresent(aborted -> aborted.forEach(
                each -> said.append(' ').append(each.producerId()).append(':').append(each.firstOffset())));
        return said.toString();
    }

    private String byTime(long timestamp) {
        Option<FileRecords.TimestampAndOffset> found = log.fetchOffsetByTimestamp(timestamp, Option.empty());
        return found.isEmpty() ? "" : found.get().timestamp + " " + found.get().offset + " "
                + found.get().leaderEpoch.orElse(-1);
    }

    private String epochEnd(int epoch) {
        Option<OffsetAndEpoch> end = log.endOffsetForEpoch(epoch);
        return end.isEmpty() ? "" : end.get().leaderEpoch() + " " + end.get().offset();
    }

    private String state() {
        StringBuilder said = new StringBuilder();
        said.append(log.logStartOffset()).append(' ').append(log.logEndOffset()).append(' ')
                .append(log.highWatermark()).append(' ').append(log.lastStableOffset()).append(';');
        log.logSegments().forEach(segment -> said.append(' ').append(segment.baseOffset()).append(':')
                .append(segment.size()));
        SortedMap<Long, String> producers = new TreeMap<>();
        CollectionConverters.asJava(log.activeProducers()).forEach(
                producer -> producers.put(producer.producerId(), said(producer)));
        return said.append(';').append(String.join("", producers.values())).toString();
    }

    private static String said(ProducerState producer) {
        return " " + producer.producerId() + ":" + producer.producerEpoch() + ":" + producer.lastSequence() + ":"
                + producer.lastTimestamp() + ":" + producer.coordinatorEpoch() + ":" + producer.currentTxnStartOffset();
    }

    /** What was scheduled at once is done before the answer. */
    private void settle() {
        CountDownLatch done = new CountDownLatch(1);
        scheduler.scheduleOnce("settle", done::countDown, 0L);
        try {
            done.await(10, TimeUnit.SECONDS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
