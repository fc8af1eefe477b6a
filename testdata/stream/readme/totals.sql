-- Totals by product, kept under the keys total:PRODUCT of the server on port 6379, as orders come.
CREATE TABLE orders (product STRING, ts TIMESTAMP(3), pieces INT, price DECIMAL(10, 2))
  WITH ('connector' = 'filesystem', 'path' = 'testdata/stream/readme/orders.csv', 'format' = 'csv',
        'source.monitor-interval' = '200 ms');
CREATE TABLE total (product STRING, orders BIGINT, pieces BIGINT, revenue DECIMAL(38, 2), PRIMARY KEY (product) NOT ENFORCED)
  WITH ('connector' = 'redis', 'port' = '6379');
INSERT INTO total SELECT product, COUNT(*), SUM(CAST(pieces AS BIGINT)), SUM(pieces * price) FROM orders GROUP BY product;
