import java.util.Map;
import java.util.TreeMap;
import kafka.server.DynamicBrokerConfig;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints what Kafka knows of its broker and topic configs, a line each: {@code broker|topic TAB name TAB type TAB
 * default (as Kafka prints it, empty for none) TAB dynamic (true, false)}.
 */
public final class ConfigList {
    private ConfigList() {}

    public static void main(String[] unused) {
        print("broker", KafkaConfig.configDef());
        print("topic", LogConfig.configDefCopy());
    }

    private static void print(String kind, ConfigDef configs) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : new TreeMap<>(configs.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            String value = ConfigDef.convertToString(key.defaultValue, key.type);
            boolean dynamic = DynamicBrokerConfig.AllDynamicConfigs().contains(key.name);
            System.out.println(String.join("\t", kind, key.name, key.type.name(), value == null ? "" : value,
                    Boolean.toString(dynamic)));
        }
    }
}
