// The driver of go-zookeeper for `docent conform client`: `driver CONNECT`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

var (
	client *zk.Conn
	output sync.Mutex
)

var names = map[error]string{
	zk.ErrNoNode: "NONODE", zk.ErrNodeExists: "NODEEXISTS", zk.ErrBadVersion: "BADVERSION",
	zk.ErrConnectionClosed: "CONNECTIONLOSS", zk.ErrSessionExpired: "SESSIONEXPIRED",
}

func say(line string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.TrimRight(line, " "))
}

func word(state zk.State) string {
	switch state {
	case zk.StateHasSession, zk.StateConnectedReadOnly:
		return "connected"
	case zk.StateExpired:
		return "expired"
	}
	return "suspended"
}

func connect(timeout int) error {
	var events <-chan zk.Event
	client, events, _ = zk.Connect([]string{os.Args[1]}, time.Duration(timeout)*time.Millisecond)
	connected := make(chan struct{})
	var first sync.Once
	go func() {
		for event := range events {
			if event.Type == zk.EventSession {
				say("! state " + word(event.State))
				if event.State == zk.StateHasSession {
					first.Do(func() { close(connected) })
				}
			}
		}
	}()
	select {
	case <-connected:
		return nil
	case <-time.After(20 * time.Second):
		return zk.ErrConnectionClosed
	}
}

func watch(path string) (string, error) {
	exists, _, events, err := client.ExistsW(path)
	if err != nil {
		return "", err
	}
	go func() {
		if event := <-events; event.Type == zk.EventNotWatching {
			say("! end " + path)
		} else {
			say("! event " + path)
		}
	}()
	return fmt.Sprint(exists), nil
}

func multi(paths []string) error {
	var operations []interface{}
	for _, path := range paths {
		operations = append(operations, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
	}
	_, err := client.Multi(operations...)
	return err
}

func answer(verb string, words []string) (string, error) {
	switch verb {
	case "connect":
		timeout, _ := strconv.Atoi(words[0])
		return "", connect(timeout)
	case "create":
		return client.Create(words[0], []byte(words[1]), 0, zk.WorldACL(zk.PermAll))
	case "get":
		data, stat, err := client.Get(words[0])
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d %s", stat.Version, data), nil
	case "set":
		version, err := strconv.Atoi(append(words, "-1")[2])
		if err != nil {
			return "", err
		}
		stat, err := client.Set(words[0], []byte(words[1]), int32(version))
		if err != nil {
			return "", err
		}
		return fmt.Sprint(stat.Version), nil
	case "delete":
		return "", client.Delete(words[0], -1)
	case "children":
		children, _, err := client.Children(words[0])
		return fmt.Sprint(len(children)), err
	case "watch":
		return watch(words[0])
	case "multi":
		return "", multi(words)
	case "state":
		return word(client.State()), nil
	}
	client.Close()
	return "", nil
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Split(strings.TrimSpace(line), " ")
		value, err := answer(words[1], words[2:])
		if err == nil {
			say(words[0] + " ok " + value)
		} else if name, isKnown := names[err]; isKnown {
			say(words[0] + " error " + name)
		} else {
			say(words[0] + " error " + strings.ReplaceAll(err.Error(), " ", "-"))
		}
		if words[1] == "close" {
			return
		}
	}
}
