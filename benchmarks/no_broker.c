/*
 * Moves the bytes that a broker moves, and does nothing else: what any broker must spend at least.
 *
 * usage: no_broker ANSWER_BYTES append|answer|send FILE
 *
 * Prints the port it listens on (127.0.0.1), then serves connections in one thread until it is killed. It receives whole
 * requests (size first). `append` writes each request to the end of FILE and answers; `answer` only answers; `send` answers
 * with bytes of FILE by sendfile, from its start to its end and again. An answer has ANSWER_BYTES bytes after its size: the request's correlation id,
 * then zeros, which are no error to whoever looks for an error code (`send`: then the bytes of FILE).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES (2 << 20)
#define SMALL_ANSWER_BYTES 4096
#define SEND_HEAD_BYTES 128
#define READ_BYTES 65536
#define UNSENT_BYTES 65536 /* as klog: a full send buffer costs more, most of all with BBR */

struct connection {
    int fd;
    int full;                /* waits until its socket takes more */
    size_t got;              /* bytes of requests in `buffer` */
    size_t head_at, head_left; /* of the answers in `heads`: the next byte to send, bytes left */
    off_t file_at;
    size_t file_left;        /* bytes of FILE to send */
    char *buffer, *heads;
};

static size_t answer_bytes;
static char mode;
static int file;
static off_t file_end; /* append: of what is written; send: size of FILE */
static off_t next_at;  /* send: where the next answer begins */

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Sends what is left of the answers; with EPOLLOUT watched as long as the socket is full. */
static void send_answers(int poller, struct connection *c)
{
    int full = 0;
    while (c->head_left && !full) {
        ssize_t size = send(c->fd, c->heads + c->head_at, c->head_left, MSG_NOSIGNAL | (c->file_left ? MSG_MORE : 0));
        if (size < 0 && errno != EAGAIN)
            fail("send");
        full = size < 0;
        if (!full) {
            c->head_at += size;
            c->head_left -= size;
        }
    }
    while (c->file_left && !full) {
        ssize_t size = sendfile(c->fd, file, &c->file_at, c->file_left);
        if (size < 0 && errno != EAGAIN)
            fail("sendfile");
        full = size < 0;
        if (!full)
            c->file_left -= size;
    }
    if (full != c->full) {
        struct epoll_event event = {.events = full ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
        if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event) < 0)
            fail("epoll_ctl");
        c->full = full;
    }
    if (!full)
        c->head_at = 0;
}

static void add_answer(struct connection *c, const char *request)
{
    uint32_t size = htonl(answer_bytes);
    size_t head = 4 + (mode == 's' ? SEND_HEAD_BYTES : answer_bytes);
    char *answer = c->heads + c->head_at + c->head_left;
    memset(answer, 0, head);
    memcpy(answer, &size, 4);
    memcpy(answer + 4, request + 8, 4);
    c->head_left += head;
    if (mode == 's') {
        c->file_left = answer_bytes - SEND_HEAD_BYTES;
        if (next_at + (off_t)c->file_left > file_end)
            next_at = 0;
        c->file_at = next_at;
        next_at += c->file_left;
    }
}

static void receive(int poller, struct connection *c)
{
    for (;;) {
        size_t most = READ_BYTES;
        uint32_t first = 0;
        if (c->got >= 4) {
            memcpy(&first, c->buffer, 4);
            first = ntohl(first) + 4;
            if (first > BUFFER_BYTES)
                fail("a request that is too large");
            if (first - c->got > most)
                most = first - c->got;
        }
        ssize_t size = recv(c->fd, c->buffer + c->got, most, 0);
        if (size < 0 && errno == EAGAIN)
            return;
        if (size <= 0) {
            close(c->fd);
            free(c->buffer);
            free(c->heads);
            free(c);
            return;
        }
        c->got += size;
        size_t at = 0;
        while (c->got - at >= 4) {
            uint32_t whole;
            memcpy(&whole, c->buffer + at, 4);
            whole = ntohl(whole) + 4;
            if (c->got - at < whole)
                break;
            if (mode == 'p') {
                if (pwrite(file, c->buffer + at, whole, file_end) != (ssize_t)whole)
                    fail("pwrite");
                file_end += whole;
            }
            add_answer(c, c->buffer + at);
            at += whole;
        }
        memmove(c->buffer, c->buffer + at, c->got - at);
        c->got -= at;
        if (at) {
            send_answers(poller, c);
            return;
        }
        if ((size_t)size < most)
            return;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    answer_bytes = atoll(argv[1]);
    mode = strcmp(argv[2], "append") == 0 ? 'p' : argv[2][0];
    file = open(argv[3], O_RDWR | O_CREAT, 0600);
    if (file < 0)
        fail(argv[3]);
    if (mode == 's')
        file_end = lseek(file, 0, SEEK_END);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int one = 1, unsent = UNSENT_BYTES, listening = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (bind(listening, (struct sockaddr *)&address, size) < 0 || listen(listening, 64) < 0 ||
        getsockname(listening, (struct sockaddr *)&address, &size) < 0 ||
        epoll_ctl(poller, EPOLL_CTL_ADD, listening, &event) < 0)
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (c && events[i].events & EPOLLOUT && (c->head_left || c->file_left)) {
                send_answers(poller, c);
            } else if (c) {
                receive(poller, c);
            } else {
                c = calloc(1, sizeof *c);
                c->fd = accept(listening, NULL, NULL);
                c->buffer = malloc(BUFFER_BYTES + READ_BYTES);
                c->heads = malloc(SMALL_ANSWER_BYTES * 1024);
                setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
                fcntl(c->fd, F_SETFL, O_NONBLOCK);
                event.data.ptr = c;
                if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event) < 0)
                    fail("epoll_ctl");
            }
        }
    }
}
