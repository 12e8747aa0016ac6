import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records at a steady rate, with the producer's defaults but for acks=1, and prints how long they took to
 * be acknowledged: {@code p50 p99} in milliseconds. The first ones warm up and do not count, which
 * ProducerPerformance 3.9 cannot leave out.
 *
 * <p>Arguments: {@code bootstrap topic recordBytes perSecond warmUpRecords records}.
 */
public final class PacedProducer {
    private PacedProducer() {}

    public static void main(String[] args) throws InterruptedException, ExecutionException {
        byte[] value = new byte[Integer.parseInt(args[2])];
        long intervalNanos = 1_000_000_000L / Integer.parseInt(args[3]);
        int warmUp = Integer.parseInt(args[4]);
        int records = Integer.parseInt(args[5]);
        long[] taken = new long[warmUp + records];
        AtomicInteger failed = new AtomicInteger();
        Map<String, Object> configs = Map.of("bootstrap.servers", args[0], "acks", "1");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(args[1]);
            long start = System.nanoTime();
            for (int i = 0; i < taken.length; i++) {
                long due = start + i * intervalNanos;
                while (System.nanoTime() < due) {
                    LockSupport.parkNanos(due - System.nanoTime());
                }
                int number = i;
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], value), (metadata, error) -> {
                    taken[number] = System.nanoTime() - sent;
                    if (error != null) {
                        failed.incrementAndGet();
                    }
                });
            }
        }
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " records were not acknowledged");
        }
        long[] counted = Arrays.copyOfRange(taken, warmUp, taken.length);
        Arrays.sort(counted);
        System.out.println(millis(counted[records / 2]) + " " + millis(counted[records * 99 / 100]));
    }

    private static double millis(long nanos) {
        return nanos / 10_000 / 100.0;
    }
}
