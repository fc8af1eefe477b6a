-- Orders of expensive pieces, on the terminal.
CREATE TABLE orders (product STRING, ts TIMESTAMP(3), pieces INT, price DECIMAL(10, 2))
WITH ('connector' = 'filesystem', 'path' = 'orders.csv', 'format' = 'csv');

CREATE TABLE shown (product STRING, pieces INT, price DECIMAL(10, 2)) WITH ('connector' = 'print');

INSERT INTO shown SELECT product, pieces, price FROM orders WHERE price > 24.5;
