import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;

/**
 * Two queries of Spark Structured Streaming: one copies topic {@code in} to topic {@code out} with Spark's Kafka
 * sink, one copies {@code out} to a table of Parquet files. At the end of stdin the queries process what there
 * is and stop, and the values of the table are written to {@code values.txt}.
 *
 * <p>Arguments: {@code bootstrap work}, the directory of checkpoints and the table.
 */
public final class CopyTopic {
    private CopyTopic() {}

    public static void main(String[] args) throws Exception {
        Path work = Path.of(args[1]);
        SparkSession spark = SparkSession.builder().getOrCreate();
        List<StreamingQuery> queries = List.of(
                read(spark, args[0], "in").select("key", "value").writeStream().format("kafka")
                        .option("kafka.bootstrap.servers", args[0]).option("topic", "out")
                        .option("checkpointLocation", work.resolve("to-topic").toString()).start(),
                read(spark, args[0], "out").selectExpr("CAST(value AS STRING)").writeStream().format("parquet")
                        .option("path", work.resolve("table").toString())
                        .option("checkpointLocation", work.resolve("to-table").toString()).start());
        awaitEndOfInput();
        for (StreamingQuery query : queries) {
            query.processAllAvailable();
            query.stop();
        }
        List<String> values = spark.read().parquet(work.resolve("table").toString()).as(Encoders.STRING())
                .collectAsList();
        Files.write(work.resolve("values.txt"), values);
        spark.stop();
    }

    private static Dataset<Row> read(SparkSession spark, String bootstrap, String topic) {
        return spark.readStream().format("kafka").option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", topic).option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", "150").load();
    }

    private static void awaitEndOfInput() throws IOException {
        while (System.in.read() >= 0) {
            // Nothing is said on stdin.
        }
    }
}
