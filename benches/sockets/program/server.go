// The server of the benchmark in Go, with one goroutine for each connection.
// The arguments are the service (echo, reply, sink or http) and the number of workers. The file src/server.rs describes the
// protocol with the driver.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Size of the buffer of the service echo, in bytes, as in src/server.rs.
const echoBuffer = 1 << 10

// Size of the buffer of the service sink, in bytes, as in src/server.rs.
const sinkBuffer = 64 << 10

func echo(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, echoBuffer)
	for {
		count, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:count]); err != nil {
			return
		}
	}
}

func reply(conn net.Conn) {
	defer conn.Close()
	var answer [64]byte
	for i := range answer {
		answer[i] = 'x'
	}
	_, _ = conn.Write(answer[:])
}

func sink(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, sinkBuffer)
	var total uint64
	for {
		count, err := conn.Read(buf)
		total += uint64(count)
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
	}
	var answer [8]byte
	binary.LittleEndian.PutUint64(answer[:], total)
	_, _ = conn.Write(answer[:])
}

func hello(writer http.ResponseWriter, _ *http.Request) {
	_, _ = writer.Write([]byte("Hello World!"))
}

// Accepts connections, and starts a goroutine for each of them.
func accept(listener net.Listener, serve func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go serve(conn)
	}
}

func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func main() {
	services := map[string]func(net.Conn){"echo": echo, "reply": reply, "sink": sink}
	workers, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	runtime.GOMAXPROCS(workers)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if os.Args[1] == "http" {
		// hyper has the same time limit by default.
		server := &http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: 30 * time.Second}
		go func() { panic(server.Serve(listener)) }()
	} else {
		go accept(listener, services[os.Args[1]])
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(cpuTime())
	}
}
