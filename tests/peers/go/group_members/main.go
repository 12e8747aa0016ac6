// Runs any number of franz-go consumers that are members of groups. Fields of a line are separated by tabs.
//
// Lines of stdin: "join ID TOPIC CONFIG=VALUE..." subscribes a new consumer, "close ID" lets it commit what it
// has read and close. At the end of stdin the program ends.
//
// Lines of stdout: "assigned ID 0,1,2" (the partitions that it holds now), "read ID VALUE", "closed ID",
// "failed ID ERROR".
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

var printing sync.Mutex

func say(fields ...string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(strings.Join(fields, "\t"))
}

// member is one consumer. Its callbacks run in other goroutines than its loop.
type member struct {
	id      string
	closing context.Context
	close   context.CancelFunc
	lock    sync.Mutex
	held    map[int32]bool
}

func (m *member) change(partitions map[string][]int32, held bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, numbers := range partitions {
		for _, number := range numbers {
			if held {
				m.held[number] = true
			} else {
				delete(m.held, number)
			}
		}
	}
	numbers := make([]int, 0, len(m.held))
	for number := range m.held {
		numbers = append(numbers, int(number))
	}
	sort.Ints(numbers)
	texts := make([]string, 0, len(numbers))
	for _, number := range numbers {
		texts = append(texts, strconv.Itoa(number))
	}
	say("assigned", m.id, strings.Join(texts, ","))
}

func (m *member) options(topic string, configs []string) ([]kgo.Opt, error) {
	lost := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.change(partitions, false) }
	options := []kgo.Opt{
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.change(partitions, true)
		}),
		kgo.OnPartitionsRevoked(lost),
		kgo.OnPartitionsLost(lost),
	}
	for _, config := range configs {
		name, value, _ := strings.Cut(config, "=")
		switch name {
		case "bootstrap.servers":
			options = append(options, kgo.SeedBrokers(value))
		case "group.id":
			options = append(options, kgo.ConsumerGroup(value))
		case "group.instance.id":
			options = append(options, kgo.InstanceID(value))
		case "partition.assignment.strategy":
			options = append(options, kgo.Balancers(balancers[value]))
		case "session.timeout.ms", "heartbeat.interval.ms":
			ms, err := strconv.Atoi(value)
			if err != nil {
				return nil, err
			}
			limit := time.Duration(ms) * time.Millisecond
			if name == "session.timeout.ms" {
				options = append(options, kgo.SessionTimeout(limit))
			} else {
				options = append(options, kgo.HeartbeatInterval(limit))
			}
		default:
			return nil, fmt.Errorf("config %s is not known here", name)
		}
	}
	return options, nil
}

func (m *member) run(topic string, configs []string) error {
	options, err := m.options(topic, configs)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for m.closing.Err() == nil {
		fetches := client.PollFetches(m.closing)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				return failed.Err
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { say("read", m.id, string(record.Value)) })
	}
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return client.CommitUncommittedOffsets(limit)
}

func main() {
	members := map[string]*member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if fields[0] != "join" {
			members[fields[1]].close()
			continue
		}
		closing, cancel := context.WithCancel(context.Background())
		joined := &member{id: fields[1], closing: closing, close: cancel, held: map[int32]bool{}}
		members[fields[1]] = joined
		go func() {
			if err := joined.run(fields[2], fields[3:]); err != nil {
				say("failed", joined.id, strings.ReplaceAll(err.Error(), "\n", " "))
				return
			}
			say("closed", joined.id)
		}()
	}
}
