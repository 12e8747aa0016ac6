/** One JSON object, written in the order in which its fields are put. */
final class Json {
    private final StringBuilder text = new StringBuilder("{");

    Json put(String name, Object value) {
        return putRaw(name, value instanceof String ? quote((String) value) : String.valueOf(value));
    }

    Json putRaw(String name, String json) {
        if (text.length() > 1) {
            text.append(',');
        }
        text.append(quote(name)).append(':').append(json);
        return this;
    }

    static String quote(String value) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < 0x20) {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }

    @Override
    public String toString() {
        return text + "}";
    }
}
