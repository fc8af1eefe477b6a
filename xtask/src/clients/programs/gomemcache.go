// gomemcache, with several goroutines.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func demand(holds bool, what string) {
	if !holds {
		log.Panic(what)
	}
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Getenv("MEMCACHED_PORT"))
	client.Timeout = 5 * time.Second
	must(client.Ping())
	must(client.FlushAll())
	must(client.Set(&memcache.Item{Key: "a", Value: []byte("one"), Flags: 1 << 31}))
	item, err := client.Get("a")
	must(err)
	demand(string(item.Value) == "one" && item.Flags == 1<<31, "set and get")
	_, err = client.Get("absent")
	demand(err == memcache.ErrCacheMiss, "absent")
	demand(client.Add(&memcache.Item{Key: "a"}) == memcache.ErrNotStored, "add")
	demand(client.Replace(&memcache.Item{Key: "absent"}) == memcache.ErrNotStored, "replace")
	must(client.Append(&memcache.Item{Key: "a", Value: []byte("+")}))
	must(client.Prepend(&memcache.Item{Key: "a", Value: []byte("-")}))
	item, err = client.Get("a")
	must(err)
	demand(string(item.Value) == "-one+", "append")
	first, err := client.Get("a")
	must(err)
	item.Value = []byte("two")
	must(client.CompareAndSwap(item))
	demand(client.CompareAndSwap(first) == memcache.ErrCASConflict, "an old number")
	must(client.Set(&memcache.Item{Key: "n", Value: []byte("0")}))
	var wait sync.WaitGroup
	for range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range 200 {
				_, err := client.Increment("n", 1)
				must(err)
			}
		}()
	}
	wait.Wait()
	n, err := client.Decrement("n", 600)
	must(err)
	demand(n == 1000, "counters")
	keys := []string{"absent"}
	for at := range 300 {
		key := fmt.Sprint("key:", at)
		keys = append(keys, key)
		must(client.Set(&memcache.Item{Key: key, Value: []byte(key)}))
	}
	found, err := client.GetMulti(keys)
	must(err)
	demand(len(found) == 300 && string(found["key:299"].Value) == "key:299", "many at once")
	large := bytes.Repeat([]byte("\r\nEND\r\n"), 100_000)
	must(client.Set(&memcache.Item{Key: "large", Value: large}))
	item, err = client.Get("large")
	must(err)
	demand(bytes.Equal(item.Value, large), "large")
	must(client.Touch("a", 100))
	must(client.Delete("a"))
	demand(client.Delete("a") == memcache.ErrCacheMiss, "delete")
	must(client.Set(&memcache.Item{Key: "short", Value: []byte("x"), Expiration: 1}))
	time.Sleep(2100 * time.Millisecond)
	_, err = client.Get("short")
	demand(err == memcache.ErrCacheMiss, "expired")
}
