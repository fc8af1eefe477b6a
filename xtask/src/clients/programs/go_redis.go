// go-redis: pipelines, transactions, messages, blocking commands, consumer groups of streams, SCAN.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(got, wanted any) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		panic(fmt.Sprintf("got %v, wanted %v", got, wanted))
	}
}

func try(protocol int) {
	ctx := context.Background()
	r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Getenv("PORT"), Protocol: protocol})
	defer r.Close()
	must(r.FlushAll(ctx).Err())
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 1000; i++ {
			p.Set(ctx, fmt.Sprintf("key:%d", i), i, time.Hour)
		}
		return nil
	})
	must(err)
	must(r.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.IncrBy(ctx, "n", 6)
			return nil
		})
		return err
	}, "n"))
	equal(r.Get(ctx, "n").Val(), "6")
	must(r.HSet(ctx, "h", "a", 1, "b", 2).Err())
	equal(r.HGetAll(ctx, "h").Val(), map[string]string{"a": "1", "b": "2"})
	must(r.ZAdd(ctx, "z", redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2.5, Member: "two"}).Err())
	equal(r.ZRangeWithScores(ctx, "z", 0, -1).Val(), []redis.Z{{Score: 1, Member: "one"}, {Score: 2.5, Member: "two"}})
	keys, seen := r.Scan(ctx, 0, "key:*", 100).Iterator(), 0
	for keys.Next(ctx) {
		seen++
	}
	must(keys.Err())
	equal(seen, 1000)
	listener := r.PSubscribe(ctx, "p*")
	_, err = listener.Receive(ctx)
	must(err)
	equal(r.Publish(ctx, "pq", "hello").Val(), 1)
	message, err := listener.ReceiveMessage(ctx)
	must(err)
	equal(message.Payload, "hello")
	must(listener.Close())
	go func() {
		time.Sleep(50 * time.Millisecond)
		r.RPush(ctx, "queue", "job")
	}()
	equal(r.BLPop(ctx, 5*time.Second, "queue").Val(), []string{"queue", "job"})
	must(r.XGroupCreateMkStream(ctx, "stream", "group", "0").Err())
	id := r.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"a", "1"}}).Val()
	read, err := r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "group", Consumer: "me", Streams: []string{"stream", ">"}}).Result()
	must(err)
	equal(read[0].Messages[0].ID, id)
	equal(r.XAck(ctx, "stream", "group", id).Val(), 1)
	equal(r.XInfoGroups(ctx, "stream").Val()[0].Lag, 0)
	must(r.SlowLogGet(ctx, 10).Err())
	must(r.ClientList(ctx).Err())
	if r.Incr(ctx, "h").Err() == nil {
		panic("no error")
	}
}

func main() {
	try(2)
	try(3)
}
