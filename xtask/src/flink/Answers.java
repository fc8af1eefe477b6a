import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Period;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.table.types.logical.utils.LogicalTypeChecks;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Writes Flink's results for the expressions of files. A file has blocks, separated by empty lines:
 *
 * <p>`rows`, columns with types, and rows with cells separated by `|`: the input of the expressions after it;
 * `expr`, an expression, `----`, its type, and its value for each row. `refused` in place of the type: there is no
 * plan. `failed` in place of a value: the job fails at this row. Lines that begin with `#` are comments. `\\e` is an
 * empty text.
 */
public final class Answers {
    private final StreamTableEnvironment tables;
    private final StreamExecutionEnvironment streams;
    private int rows;

    private Answers() throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("restart-strategy.type", "disable");
        configuration.setString("rest.bind-port", "0");
        configuration.setString("rest.port", "0");
        // One cluster for all jobs: each starts in a fraction of the time.
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration).setNumTaskManagers(1).setNumSlotsPerTaskManager(1).build());
        cluster.start();
        var place = cluster.getRestAddress().get();
        streams = StreamExecutionEnvironment.createRemoteEnvironment(place.getHost(), place.getPort(), configuration);
        streams.setParallelism(1);
        tables = StreamTableEnvironment.create(streams);
        tables.getConfig().setLocalTimeZone(ZoneOffset.UTC);
    }

    /** Arguments: files to read and, after each, the file to write. */
    public static void main(String[] arguments) throws Exception {
        Answers answers = new Answers();
        for (int at = 0; at + 1 < arguments.length; at += 2) {
            List<String> out = answers.file(Files.readString(Path.of(arguments[at])));
            Files.writeString(Path.of(arguments[at + 1]), String.join("\n\n", out) + "\n");
        }
        // Threads of a cluster may still run.
        System.exit(0);
    }

    private List<String> file(String text) {
        List<String> out = new ArrayList<>();
        // The blocks that need answers, and their expressions.
        List<Integer> places = new ArrayList<>();
        List<String> exprs = new ArrayList<>();
        for (String block : text.strip().split("\n\n+")) {
            List<String> lines = Arrays.asList(block.split("\n"));
            List<String> said = lines.stream().filter(line -> !line.startsWith("#")).toList();
            if (!said.isEmpty() && said.get(0).equals("rows")) {
                answer(out, places, exprs);
                rows(said.get(1), said.subList(2, said.size()));
            } else if (!said.isEmpty() && said.get(0).equals("expr")) {
                int end = said.indexOf("----");
                places.add(out.size());
                exprs.add(String.join("\n", said.subList(1, end < 0 ? said.size() : end)));
                end = lines.indexOf("----");
                block = String.join("\n", lines.subList(0, end < 0 ? lines.size() : end)) + "\n----";
            }
            out.add(block);
        }
        answer(out, places, exprs);
        return out;
    }

    private void answer(List<String> out, List<Integer> places, List<String> exprs) {
        String[] types = new String[exprs.size()];
        List<Integer> planned = new ArrayList<>();
        for (int index = 0; index < types.length; index++) {
            String expr = exprs.get(index);
            try {
                LogicalType type = tables.sqlQuery("SELECT " + expr + " AS x FROM v").getResolvedSchema()
                        .getColumnDataTypes().get(0).getLogicalType();
                types[index] = name(type);
                // Flink refuses some expressions only when it generates code.
                tables.explainSql("SELECT " + expr + " AS x FROM v");
                planned.add(index);
            } catch (Throwable error) {
                types[index] = "refused";
                System.err.println("refused: " + expr + "\n    " + reason(error));
            }
        }
        String[][] values = new String[types.length][];
        run(exprs, planned, values);
        for (int index = 0; index < types.length; index++) {
            StringBuilder block = new StringBuilder(out.get(places.get(index)));
            block.append('\n').append(types[index]);
            for (String value : values[index] == null ? new String[0] : values[index]) {
                block.append('\n').append(value);
            }
            out.set(places.get(index), block.toString());
        }
        places.clear();
        exprs.clear();
    }

    /** Runs all expressions at once; if that fails, in halves, and in the end row by row. */
    private void run(List<String> exprs, List<Integer> which, String[][] values) {
        if (which.isEmpty()) {
            return;
        }
        try {
            List<String[]> found = rows(exprs, which, -1);
            for (int at = 0; at < which.size(); at++) {
                int column = at;
                values[which.get(at)] = found.stream().map(row -> row[column]).toArray(String[]::new);
            }
        } catch (Throwable error) {
            int half = which.size() / 2;
            if (half > 0) {
                run(exprs, which.subList(0, half), values);
                run(exprs, which.subList(half, which.size()), values);
                return;
            }
            values[which.get(0)] = new String[rows];
            for (int row = 0; row < rows; row++) {
                String value;
                try {
                    value = rows(exprs, which, row).get(0)[0];
                } catch (Throwable failed) {
                    value = "failed";
                    System.err.println("failed: " + exprs.get(which.get(0)) + "\n    " + reason(failed));
                }
                values[which.get(0)][row] = value;
            }
        }
    }

    private List<String[]> rows(List<String> exprs, List<Integer> which, int row) throws Exception {
        List<String> columns = new ArrayList<>();
        for (int index : which) {
            columns.add(exprs.get(index) + " AS x" + index);
        }
        String query = "SELECT " + String.join(", ", columns) + " FROM v" + (row < 0 ? "" : " WHERE number_ = " + row);
        var result = tables.executeSql(query);
        List<LogicalType> types = result.getResolvedSchema().getColumnDataTypes().stream()
                .map(type -> type.getLogicalType()).toList();
        List<String[]> found = new ArrayList<>();
        try (CloseableIterator<Row> rows = result.collect()) {
            while (rows.hasNext()) {
                Row each = rows.next();
                String[] texts = new String[types.size()];
                for (int column = 0; column < texts.length; column++) {
                    texts[column] = escaped(text(each.getField(column), types.get(column)));
                }
                found.add(texts);
            }
        }
        return found;
    }

    /** Makes `v` from texts that are cast, so that no value is a constant. */
    private void rows(String head, List<String> lines) {
        String[] columns = head.split(", (?=[a-z_]+ )");
        String[] names = new String[columns.length + 1];
        TypeInformation<?>[] types = new TypeInformation<?>[names.length];
        List<String> casts = new ArrayList<>();
        for (int column = 0; column < columns.length; column++) {
            String[] words = columns[column].split(" ", 2);
            names[column] = "c" + column;
            types[column] = Types.STRING;
            casts.add("CAST(c" + column + " AS " + words[1] + ") AS " + words[0]);
        }
        names[columns.length] = "number_";
        types[columns.length] = Types.INT;
        casts.add("number_");
        List<Row> all = new ArrayList<>();
        for (String line : lines) {
            String[] cells = line.split("\\|", -1);
            Row row = new Row(names.length);
            for (int column = 0; column < columns.length; column++) {
                row.setField(column, cells[column].equals("NULL") ? null : plain(cells[column]));
            }
            row.setField(columns.length, all.size());
            all.add(row);
        }
        rows = all.size();
        var stream = streams.fromCollection(all, Types.ROW_NAMED(names, types));
        tables.dropTemporaryView("v");
        tables.dropTemporaryView("texts");
        tables.createTemporaryView("texts", stream);
        tables.createTemporaryView("v", tables.sqlQuery("SELECT " + String.join(", ", casts) + " FROM texts"));
    }

    private static String reason(Throwable error) {
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return String.valueOf(error).lines().findFirst().orElse("");
    }

    private static String plain(String cell) {
        return cell.equals("\\e") ? "" : cell.replace("\\\\", "\u0000").replace("\\n", "\n").replace("\\t", "\t").replace("\\p", "|")
                .replace("\u0000", "\\");
    }

    private static String escaped(String text) {
        if (text.isEmpty()) {
            return "\\e";
        }
        StringBuilder out = new StringBuilder();
        for (char each : text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").toCharArray()) {
            out.append(each < ' ' || each >= 127 && each < 160 ? String.format("\\u%04x", (int) each) : each);
        }
        return out.toString();
    }

    /** The text that a cast to STRING gives. */
    private static String text(Object value, LogicalType type) {
        if (value == null) {
            return "NULL";
        }
        if (value instanceof BigDecimal decimal) {
            return decimal.toPlainString();
        }
        if (value instanceof Boolean truth) {
            return truth ? "TRUE" : "FALSE";
        }
        if (value instanceof LocalDate date) {
            return date.format(DateTimeFormatter.ofPattern("uuuu-MM-dd")).replace("+", "");
        }
        if (value instanceof LocalTime time) {
            return time.format(DateTimeFormatter.ofPattern("HH:mm:ss" + fraction(type)));
        }
        if (value instanceof LocalDateTime moment) {
            return moment.format(DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss" + fraction(type))).replace("+", "");
        }
        if (value instanceof Instant instant) {
            return text(LocalDateTime.ofInstant(instant, ZoneOffset.UTC), type);
        }
        if (value instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        if (value instanceof Period period) {
            long months = period.toTotalMonths();
            return (months < 0 ? "-" : "+") + Math.abs(months) / 12 + "-" + String.format("%02d", Math.abs(months) % 12);
        }
        if (value instanceof Duration duration) {
            Duration size = duration.abs();
            return String.format("%s%d %02d:%02d:%02d.%03d", duration.isNegative() ? "-" : "+", size.toDays(),
                    size.toHoursPart(), size.toMinutesPart(), size.toSecondsPart(), size.toMillisPart());
        }
        if (value instanceof Object[] values) {
            List<String> texts = new ArrayList<>();
            for (Object each : values) {
                texts.add(text(each, type.getChildren().get(0)));
            }
            return "[" + String.join(", ", texts) + "]";
        }
        if (value instanceof Row row) {
            List<String> texts = new ArrayList<>();
            for (int field = 0; field < row.getArity(); field++) {
                texts.add(text(row.getField(field), type.getChildren().get(field)));
            }
            return "(" + String.join(", ", texts) + ")";
        }
        return value.toString();
    }

    /** The type's name in this project, which has one type for each kind of interval. */
    private static String name(LogicalType type) {
        if (type.is(LogicalTypeRoot.INTERVAL_DAY_TIME)) {
            return "INTERVAL DAY TO SECOND";
        }
        return type.is(LogicalTypeRoot.INTERVAL_YEAR_MONTH) ? "INTERVAL YEAR TO MONTH" : type.copy(true).asSummaryString();
    }

    private static String fraction(LogicalType type) {
        int digits = type.is(LogicalTypeRoot.TIME_WITHOUT_TIME_ZONE)
                        || type.is(LogicalTypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE)
                        || type.is(LogicalTypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE)
                ? LogicalTypeChecks.getPrecision(type) : 0;
        return digits == 0 ? "" : "." + "S".repeat(digits);
    }
}
