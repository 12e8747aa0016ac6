import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A wall clock that stands where the caller set it; waiting is real. */
final class SetTime implements Time {
    volatile long nowMs;

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return Time.SYSTEM.nanoseconds();
    }

    @Override
    public void sleep(long ms) {
        Time.SYSTEM.sleep(ms);
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        Time.SYSTEM.waitObject(object, condition, deadlineMs);
    }
}
