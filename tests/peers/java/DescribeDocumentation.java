import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Prints each config of a resource with the documentation that the broker gives, a line each: {@code name TAB
 * documentation}. Arguments: bootstrap servers, TOPIC or BROKER, the resource's name, whether to ask for it.
 */
public final class DescribeDocumentation {
    private DescribeDocumentation() {}

    public static void main(String[] args) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.valueOf(args[1]), args[2]);
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeDocumentation(Boolean.parseBoolean(args[3]));
        try (Admin admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]))) {
            Map<String, String> found = new TreeMap<>();
            for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
                found.put(entry.name(), String.valueOf(entry.documentation()));
            }
            found.forEach((name, text) -> System.out.println(name + "\t" + text));
        }
    }
}
