import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/**
 * Asks Kafka's AdminUtils where replicas go. One case a line:
 * `partitions replicationFactor fixedStart firstPartition id:rack,id:rack,...` (an empty rack is none);
 * answers one line a case: `partition=id,id;partition=id,id`.
 */
public class AssignReplicas {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split(" ");
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (String each : fields[4].split(",")) {
                String[] broker = each.split(":", 2);
                Optional<String> rack = broker[1].isEmpty() ? Optional.empty() : Optional.of(broker[1]);
                brokers.add(new BrokerMetadata(Integer.parseInt(broker[0]), rack));
            }
            Map<Integer, List<Integer>> assignment = AdminUtils.assignReplicasToBrokers(
                brokers, Integer.parseInt(fields[0]), Integer.parseInt(fields[1]),
                Integer.parseInt(fields[2]), Integer.parseInt(fields[3]));
            List<String> said = new ArrayList<>();
            new TreeMap<>(assignment).forEach((partition, replicas) ->
                said.add(partition + "=" + String.join(",", replicas.stream().map(String::valueOf).toList())));
            System.out.println(String.join(";", said));
        }
    }
}
