-- Revenue by product and minute, in a file.
CREATE TABLE orders (
  product STRING, ts TIMESTAMP(3), pieces INT, price DECIMAL(10, 2),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'orders.csv', 'format' = 'csv');

CREATE TABLE minutes (product STRING, minute_end TIMESTAMP(3), orders BIGINT, revenue DECIMAL(38, 2))
WITH ('connector' = 'filesystem', 'path' = 'minutes.csv', 'format' = 'csv');

INSERT INTO minutes
SELECT product, window_end, COUNT(*), SUM(pieces * price)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
WHERE product <> 'olives'
GROUP BY product, window_start, window_end;
