//! The meaning of each function, with one example, for `docs/sql/functions.md`. Tests compute each example. They fail
//! if a function of a table has no example.

/// One function, or one construct of the language that is used in an expression.
pub(crate) struct Example {
    /// The name in the function's table.
    pub(crate) name: &'static str,
    /// The syntax, if the signature does not show it.
    pub(crate) form: &'static str,
    /// The result, in words.
    pub(crate) meaning: &'static str,
    /// An expression; the current time is [`NOW`].
    pub(crate) expression: &'static str,
    /// Its value, as text.
    pub(crate) result: &'static str,
}

/// The current time of examples: 2026-01-05 09:00:00 UTC, in microseconds since 1970.
pub(crate) const NOW: i64 = 1_767_603_600_000_000;

const fn e(
    name: &'static str,
    meaning: &'static str,
    expression: &'static str,
    result: &'static str,
) -> Example {
    Example { name, form: "", meaning, expression, result }
}

impl Example {
    const fn form(mut self, form: &'static str) -> Example {
        self.form = form;
        self
    }
}

/// Examples of scalar functions: one for each entry of the tables.
#[rustfmt::skip]
pub(crate) const FUNCTIONS: &[Example] = &[
    e("UPPER", "upper case", "UPPER('tea')", "TEA"),
    e("LOWER", "lower case", "LOWER('Tea')", "tea"),
    e("CHAR_LENGTH", "count of characters; also `LENGTH`, `CHARACTER_LENGTH`", "CHAR_LENGTH('tea')", "3"),
    e("OCTET_LENGTH", "count of bytes in UTF-8", "OCTET_LENGTH('thé')", "4"),
    e("BTRIM", "without blanks, or these characters, at both ends", "BTRIM('--tea--', '-')", "tea"),
    e("LTRIM", "the same at the beginning only", "LTRIM('--tea--', '-')", "tea--"),
    e("RTRIM", "the same at the end only", "RTRIM('--tea--', '-')", "--tea"),
    e("SUBSTRING", "characters from a position on, at most this many; also `SUBSTR`", "SUBSTRING('bread', 2, 3)", "rea"),
    e("LEFT", "the first characters", "LEFT('bread', 2)", "br"),
    e("RIGHT", "the last characters", "RIGHT('bread', 2)", "ad"),
    e("POSITION", "position of the first text in the second, from 1; 0: not found", "POSITION('ea' IN 'bread')", "3")
        .form("POSITION(string IN string)"),
    e("INSTR", "position of the second text in the first, from 1; 0: not found", "INSTR('bread', 'ea')", "3"),
    e("LOCATE", "position of the first text in the second, searched from a position on", "LOCATE('a', 'banana', 3)", "4"),
    e("REPLACE", "every occurrence of the second text replaced by the third", "REPLACE('a-b-c', '-', '+')", "a+b+c"),
    e("REPEAT", "the text several times", "REPEAT('ab', 3)", "ababab"),
    e("REVERSE", "the characters in reverse order", "REVERSE('abc')", "cba"),
    e("LPAD", "filled at the left, or cut, to a length", "LPAD('7', 3, '0')", "007"),
    e("RPAD", "filled at the right, or cut, to a length", "RPAD('7', 3, '.')", "7.."),
    e("INITCAP", "each word with a capital", "INITCAP('green tea')", "Green Tea"),
    e("CONCAT", "all values as one text; NULL if one is", "CONCAT('tea', ' ', 2)", "tea 2"),
    e("CONCAT_WS", "all values that are not NULL, with the first between them", "CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
    e("SPLIT_INDEX", "the part with this index, from 0, between separators", "SPLIT_INDEX('a,b,c', ',', 1)", "b"),
    e("ASCII", "the first byte", "ASCII('A')", "65"),
    e("CHR", "the character with this code", "CHR(65)", "A"),
    e("OVERLAY", "a part replaced by another text", "OVERLAY('abcdef' PLACING 'XX' FROM 2 FOR 3)", "aXXef")
        .form("OVERLAY(string PLACING string FROM integer [FOR integer])"),
    e("TRANSLATE", "each character of the second text replaced by that of the third", "TRANSLATE('2026', '26', 'ab')", "a0ab"),
    e("STARTSWITH", "whether the text begins with another", "STARTSWITH('bread', 'br')", "TRUE"),
    e("ENDSWITH", "whether the text ends with another", "ENDSWITH('bread', 'ad')", "TRUE"),
    e("TO_BASE64", "base64 of the text", "TO_BASE64('tea')", "dGVh"),
    e("FROM_BASE64", "the text of base64", "FROM_BASE64('dGVh')", "tea"),
    e("REGEXP", "whether a part of the text matches", "REGEXP('order-17', '[0-9]+')", "TRUE"),
    e("REGEXP_EXTRACT", "the first match, or one of its groups", "REGEXP_EXTRACT('order-17', '([a-z]+)-([0-9]+)', 2)", "17"),
    e("REGEXP_REPLACE", "every match replaced", "REGEXP_REPLACE('a1b22', '[0-9]+', '#')", "a#b#"),
    e("REGEXP_COUNT", "count of matches", "REGEXP_COUNT('a1b22', '[0-9]+')", "2"),
    e("REGEXP_SUBSTR", "the first match", "REGEXP_SUBSTR('a1b22', '[0-9]+')", "1"),
    e("REGEXP_INSTR", "position of the first match, from 1; 0: none", "REGEXP_INSTR('a1b22', '[0-9]+')", "2"),
    e("JSON_VALUE", "the scalar at a path; NULL if there is none", r#"JSON_VALUE('{"a": {"b": 7}}', '$.a.b')"#, "7"),
    e("JSON_QUERY", "the object or array at a path", r#"JSON_QUERY('{"a": {"b": 7}}', '$.a')"#, r#"{"b":7}"#),
    e("JSON_EXISTS", "whether there is a value at a path", r#"JSON_EXISTS('{"a": 7}', '$.b')"#, "FALSE"),
    e("JSON_QUOTE", "the text as a string of JSON", r#"JSON_QUOTE('say "tea"')"#, r#""say \"tea\"""#),
    e("JSON_UNQUOTE", "the text of a string of JSON", r#"JSON_UNQUOTE('"tea"')"#, "tea"),
    e("ABS", "without its sign", "ABS(-7)", "7"),
    e("SIGN", "-1, 0 or 1", "SIGN(-7)", "-1"),
    e("FLOOR", "the greatest whole number that is not greater", "FLOOR(-1.5)", "-2"),
    e("CEIL", "the least whole number that is not less; also `CEILING`", "CEIL(-1.5)", "-1"),
    e("ROUND", "rounded to digits after the point", "ROUND(2.345, 2)", "2.35"),
    e("TRUNCATE", "cut to digits after the point", "TRUNCATE(2.345, 2)", "2.34"),
    e("POWER", "the first to the power of the second; also `POW`", "POWER(2, 10)", "1024.0"),
    e("SQRT", "square root", "SQRT(2)", "1.4142135623730951"),
    e("EXP", "e to the power of the number", "EXP(0)", "1.0"),
    e("LN", "natural logarithm", "LN(1)", "0.0"),
    e("LOG10", "logarithm to base 10", "LOG10(1000)", "3.0"),
    e("LOG2", "logarithm to base 2", "LOG2(8)", "3.0"),
    e("LOG", "natural logarithm, or of the second number to the base of the first", "LOG(4, 16)", "2.0"),
    e("SIN", "sine", "SIN(0)", "0.0"),
    e("COS", "cosine", "COS(0)", "1.0"),
    e("TAN", "tangent", "TAN(0)", "0.0"),
    e("ASIN", "arc sine", "ASIN(0)", "0.0"),
    e("ACOS", "arc cosine", "ACOS(1)", "0.0"),
    e("ATAN", "arc tangent", "ATAN(0)", "0.0"),
    e("ATAN2", "angle of the point (second, first)", "ATAN2(0, 1)", "0.0"),
    e("DEGREES", "radians in degrees", "DEGREES(PI())", "180.0"),
    e("RADIANS", "degrees in radians", "RADIANS(180)", "3.141592653589793"),
    e("PI", "the constant", "PI()", "3.141592653589793"),
    e("E", "the constant", "E()", "2.718281828459045"),
    e("BIN", "binary digits", "BIN(10)", "1010"),
    e("HEX", "hexadecimal digits", "HEX(255)", "FF"),
    e("EXTRACT", "a part of a date or time", "EXTRACT(HOUR FROM TIMESTAMP '2026-01-05 09:30:00')", "9")
        .form("EXTRACT(unit FROM time)"),
    e("TIMESTAMPADD", "moved by so many units", "TIMESTAMPADD(DAY, 2, TIMESTAMP '2026-01-05 09:30:00')", "2026-01-07 09:30:00")
        .form("TIMESTAMPADD(unit, integer, time)"),
    e("TIMESTAMPDIFF", "whole units from the first to the second", "TIMESTAMPDIFF(HOUR, TIMESTAMP '2026-01-05 09:30:00', TIMESTAMP '2026-01-05 12:00:00')", "2")
        .form("TIMESTAMPDIFF(unit, time, time)"),
    e("TIME_FLOOR", "the beginning of the unit", "FLOOR(TIMESTAMP '2026-01-05 09:30:00' TO HOUR)", "2026-01-05 09:00:00")
        .form("FLOOR(time TO unit)"),
    e("TIME_CEIL", "the beginning of the next unit", "CEIL(TIMESTAMP '2026-01-05 09:30:00' TO HOUR)", "2026-01-05 10:00:00")
        .form("CEIL(time TO unit)"),
    e("DATE_FORMAT", "text by a pattern", "DATE_FORMAT(TIMESTAMP '2026-01-05 09:30:00', 'yyyy/MM/dd HH:mm')", "2026/01/05 09:30"),
    e("TO_DATE", "the date of a text, by a pattern", "TO_DATE('05.01.2026', 'dd.MM.yyyy')", "2026-01-05"),
    e("TO_TIMESTAMP", "the time of a text, by a pattern", "TO_TIMESTAMP('2026-01-05 09:30:00')", "2026-01-05 09:30:00.000"),
    e("TO_TIMESTAMP_LTZ", "the time of seconds (0) or milliseconds (3) since 1970", "TO_TIMESTAMP_LTZ(1767603600, 0)", "2026-01-05 09:00:00.000"),
    e("FROM_UNIXTIME", "text of seconds since 1970, by a pattern", "FROM_UNIXTIME(1767603600)", "2026-01-05 09:00:00"),
    e("UNIX_TIMESTAMP", "seconds since 1970, of a text or of now", "UNIX_TIMESTAMP('2026-01-05 09:00:00')", "1767603600"),
    e("CURRENT_TIMESTAMP", "now; also `NOW()`", "CURRENT_TIMESTAMP", "2026-01-05 09:00:00.000").form("CURRENT_TIMESTAMP"),
    e("LOCALTIMESTAMP", "now in the session's time zone", "LOCALTIMESTAMP", "2026-01-05 09:00:00.000").form("LOCALTIMESTAMP"),
    e("PROCTIME", "the moment of processing, as a time attribute", "PROCTIME()", "2026-01-05 09:00:00.000"),
    e("CURRENT_DATE", "today", "CURRENT_DATE", "2026-01-05").form("CURRENT_DATE"),
    e("CURRENT_TIME", "the time of day", "CURRENT_TIME", "09:00:00").form("CURRENT_TIME"),
    e("LOCALTIME", "the time of day in the session's time zone", "LOCALTIME", "09:00:00").form("LOCALTIME"),
];

/// Constructs that the binder knows without an entry in a function's table.
#[rustfmt::skip]
pub(crate) const CONSTRUCTS: &[Example] = &[
    e("CASE", "the value of the first condition that holds", "CASE WHEN 2 > 1 THEN 'more' ELSE 'less' END", "more")
        .form("CASE WHEN condition THEN value ... [ELSE value] END"),
    e("IF", "the second value if the condition holds, else the third", "IF(2 > 1, 'more', 'less')", "more")
        .form("IF(condition, value, value)"),
    e("COALESCE", "the first value that is not NULL", "COALESCE(NULL, 7)", "7").form("COALESCE(value, ...)"),
    e("IFNULL", "the first value, or the second if the first is NULL", "IFNULL(NULL, 7)", "7").form("IFNULL(value, value)"),
    e("NULLIF", "NULL if both are equal, else the first", "NULLIF(7, 7)", "NULL").form("NULLIF(value, value)"),
    e("GREATEST", "the greatest value; NULL if one is", "GREATEST(3, 7, 5)", "7").form("GREATEST(value, ...)"),
    e("LEAST", "the least value; NULL if one is", "LEAST(3, 7, 5)", "3").form("LEAST(value, ...)"),
    e("CAST", "the value in another type", "CAST('7' AS INT)", "7").form("CAST(value AS type)"),
    e("TRY_CAST", "the same; NULL if the value has no form in it", "TRY_CAST('x' AS INT)", "NULL").form("TRY_CAST(value AS type)"),
    e("LIKE", "whether the text matches: `_` one character, `%` any number", "'bread' LIKE 'br%'", "TRUE")
        .form("string LIKE pattern [ESCAPE character]"),
    e("SIMILAR", "the same with regular expressions of SQL", "'bread' SIMILAR TO '(br|t)%'", "TRUE").form("string SIMILAR TO pattern"),
    e("||", "both texts", "'green ' || 'tea'", "green tea").form("string \\|\\| string"),
    e("BETWEEN", "whether the value is within both bounds", "2 BETWEEN 1 AND 3", "TRUE").form("value BETWEEN value AND value"),
    e("IN", "whether the value is one of these", "2 IN (1, 3)", "FALSE").form("value IN (value, ...)"),
    e("IS NULL", "whether the value is NULL", "NULLIF(7, 7) IS NULL", "TRUE").form("value IS [NOT] NULL"),
    e("IS DISTINCT FROM", "whether they differ, with NULL as a value", "1 IS DISTINCT FROM NULL", "TRUE")
        .form("value IS [NOT] DISTINCT FROM value"),
    e("IS JSON", "whether the text is JSON", "'[1, 2]' IS JSON", "TRUE").form("string IS [NOT] JSON [OBJECT \\| ARRAY \\| SCALAR]"),
    e("TRIM", "without blanks, or this character, at an end or at both", "TRIM(BOTH '-' FROM '--tea--')", "tea")
        .form("TRIM([BOTH \\| LEADING \\| TRAILING] [string FROM] string)"),
    e("MOD", "remainder, also `%`", "MOD(7, 4)", "3").form("MOD(number, number)"),
    e("YEAR", "parts of a time: also `QUARTER`, `MONTH`, `WEEK`, `DAYOFYEAR`, `DAYOFMONTH`, `DAYOFWEEK`, `HOUR`, `MINUTE`, `SECOND`", "YEAR(DATE '2026-01-05')", "2026")
        .form("YEAR(time)"),
    e("INTERVAL", "a span of time, to add or subtract", "TIMESTAMP '2026-01-05 09:30:00' + INTERVAL '90' MINUTE", "2026-01-05 11:00:00.000")
        .form("INTERVAL 'number' unit"),
];

/// Examples of aggregates, over the rows of [`ROWS`].
#[rustfmt::skip]
pub(crate) const AGGREGATES: &[Example] = &[
    e("COUNT", "rows, or values that are not NULL", "COUNT(v)", "3").form("COUNT(*), COUNT([DISTINCT] value)"),
    e("SUM", "sum", "SUM(v)", "5").form("SUM([DISTINCT] number)"),
    e("AVG", "mean, in the type of the argument", "AVG(CAST(v AS DOUBLE))", "1.6666666666666667").form("AVG([DISTINCT] number)"),
    e("MIN", "least value", "MIN(v)", "1").form("MIN(value)"),
    e("MAX", "greatest value", "MAX(v)", "2").form("MAX(value)"),
    e("APPROX_COUNT_DISTINCT", "count of different values; here it is exact", "APPROX_COUNT_DISTINCT(v)", "2")
        .form("APPROX_COUNT_DISTINCT(value)"),
    e("FIRST_VALUE", "the first value that came", "FIRST_VALUE(s)", "a").form("FIRST_VALUE(value)"),
    e("LAST_VALUE", "the last value that came", "LAST_VALUE(s)", "c").form("LAST_VALUE(value)"),
    e("ARRAY_AGG", "an array of all values; runs in the reference interpreter only", "ARRAY_AGG(v)", "[1, 2, 2, NULL]").form("ARRAY_AGG([DISTINCT] value)"),
    e("LISTAGG", "all texts in one; runs in the reference interpreter only", "LISTAGG(s, '+')", "a+b+c").form("LISTAGG(string [, separator])"),
];

/// The rows of (v INT, s STRING) for the examples of aggregates; an empty text means NULL.
pub(crate) const ROWS: [(&str, &str); 4] = [("1", "a"), ("2", "b"), ("2", "c"), ("", "")];
