// Writes records with franz-go as somebody who logs in, and reads the first one back. Fields of a line are
// separated by tabs.
//
// A line of stdin: ADDRESS PROTOCOL MECHANISM USER SECRET CERTIFICATE TOPIC PAUSE_MS. The secret is a password or
// a token. The pause comes between two records. The line of stdout that answers: "read VALUE", or "refused ERROR".
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const limit = time.Minute

func mechanism(name, user, secret string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: secret}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: secret}.AsMechanism()
	}
}

func options(fields []string) ([]kgo.Opt, error) {
	address, protocol, name, user, secret, certificate, topic := fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]
	found := []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if strings.HasPrefix(protocol, "SASL") {
		found = append(found, kgo.SASL(mechanism(name, user, secret)))
	}
	if strings.HasSuffix(protocol, "SSL") {
		pem, err := os.ReadFile(certificate)
		if err != nil {
			return nil, err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		found = append(found, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted, ServerName: "localhost"}))
	}
	return found, nil
}

func run(fields []string) (string, error) {
	opts, err := options(fields)
	if err != nil {
		return "", err
	}
	pauseMs, err := strconv.Atoi(fields[7])
	if err != nil {
		return "", err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// A ping is not tried again.
	if err := client.Ping(ctx); err != nil {
		return "", err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("of franz-go")).FirstErr(); err != nil {
		return "", err
	}
	time.Sleep(time.Duration(pauseMs) * time.Millisecond)
	if err := client.ProduceSync(ctx, kgo.StringRecord("in the next session")).FirstErr(); err != nil {
		return "", err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return "", err
		}
		if records := fetches.Records(); len(records) > 0 {
			return string(records[0].Value), nil
		}
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		value, err := run(strings.Split(lines.Text(), "\t"))
		if err != nil {
			fmt.Printf("refused\t%s\n", strings.Join(strings.Fields(err.Error()), " "))
			continue
		}
		fmt.Printf("read\t%s\n", value)
	}
}
