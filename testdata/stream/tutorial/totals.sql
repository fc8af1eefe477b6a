-- Totals by product, kept as orders come: the key total:PRODUCT has the newest row of each product.
CREATE TABLE orders (product STRING, ts TIMESTAMP(3), pieces INT, price DECIMAL(10, 2))
WITH ('connector' = 'filesystem', 'path' = 'orders.csv', 'format' = 'csv', 'source.monitor-interval' = '100 ms');

CREATE TABLE total (product STRING, orders BIGINT, revenue DECIMAL(38, 2), PRIMARY KEY (product) NOT ENFORCED)
WITH ('connector' = 'duramen', 'value' = 'json');

INSERT INTO total SELECT product, COUNT(*), SUM(pieces * price) FROM orders GROUP BY product;
