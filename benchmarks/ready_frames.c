/*
 * Sends ready-made requests to a broker and counts the answers.
 *
 * usage: ready_frames PORT CONNECTIONS IN_FLIGHT SECONDS MOST_REQUESTS LEAST_ANSWER OFFSETS_RISE ERROR_AT[,ERROR_AT] FILE
 *
 * FILE holds whole requests (size, API key, version, correlation id, ...), one after the other. They are sent in turn on
 * CONNECTIONS connections with IN_FLIGHT requests on each, until SECONDS have passed or MOST_REQUESTS are sent. Then the
 * client waits for the answers that are missing. Each request gets its own correlation id.
 *
 * Every answer is checked: the answers of a connection come in the order of its requests, an answer has at least
 * LEAST_ANSWER bytes after its size, and the error codes at the positions ERROR_AT (from the start of the answer, its size
 * included) are 0. With OFFSETS_RISE 1 the int64 after the first error code, the base offset of a Produce answer, is
 * greater than the one before it on the same connection. A wrong answer ends the program with status 1.
 *
 * Prints one line of JSON: requests, seconds, and this program's own CPU seconds.
 *
 * The client receives whole answers, as a consumer does, but keeps only their first HEAD_BYTES.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES 512
#define REQUEST_HEAD_BYTES 12 /* size, API key, API version, correlation id */
#define READ_BYTES (256 << 10)
#define ERRORS_MOST 4
#define IN_FLIGHT_MOST 64
#define TIMEOUT_S 60

struct frame {
    const char *bytes;
    size_t size;
};

struct connection {
    int fd;
    int waits_for_write;
    int32_t sent_id, answered_id;           /* correlation ids: of the last request, of the last answer */
    int64_t offset;                         /* of the last answer */
    int queued, first;                      /* requests that are not wholly written, the first of them in the ring */
    size_t written;                         /* bytes of the first of them that are written */
    size_t frame_at[IN_FLIGHT_MOST];        /* ring: which frame */
    char heads[IN_FLIGHT_MOST][REQUEST_HEAD_BYTES];
    char answer[HEAD_BYTES];
    size_t kept, answer_bytes, answer_left; /* of the answer being read: bytes in `answer`, its size, bytes to come */
};

static struct frame *frames;
static size_t frames_count, next_frame;
static int in_flight, errors_count, error_at[ERRORS_MOST], offsets_rise;
static size_t least_answer;
static int64_t requests, answers, most_requests;
static double until_s;
static int stopping;

static void fail(const char *what)
{
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void wrong(const char *what, int64_t found, int64_t expected)
{
    fprintf(stderr, "wrong answer: %s is %lld, expected %lld\n", what, (long long)found, (long long)expected);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void read_frames(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &status) < 0)
        fail(path);
    char *all = malloc(status.st_size);
    for (off_t got = 0; got < status.st_size;) {
        ssize_t size = read(fd, all + got, status.st_size - got);
        if (size <= 0)
            fail(path);
        got += size;
    }
    close(fd);
    for (off_t at = 0; at < status.st_size;) {
        uint32_t size;
        memcpy(&size, all + at, 4);
        frames = realloc(frames, (frames_count + 1) * sizeof *frames);
        frames[frames_count].bytes = all + at;
        frames[frames_count].size = 4 + ntohl(size);
        at += frames[frames_count++].size;
    }
}

/* Adds one request to those that the connection has to write. */
static void add_request(struct connection *c)
{
    int slot = (c->first + c->queued++) % IN_FLIGHT_MOST;
    uint32_t id = htonl(++c->sent_id);
    c->frame_at[slot] = next_frame;
    memcpy(c->heads[slot], frames[next_frame].bytes, REQUEST_HEAD_BYTES);
    memcpy(c->heads[slot] + 8, &id, 4);
    next_frame = (next_frame + 1) % frames_count;
    requests++;
}

static int gather(struct connection *c, struct iovec *parts)
{
    int count = 0;
    size_t skip = c->written;
    for (int i = 0; i < c->queued; i++) {
        int slot = (c->first + i) % IN_FLIGHT_MOST;
        const struct frame *frame = &frames[c->frame_at[slot]];
        if (skip < REQUEST_HEAD_BYTES) {
            parts[count].iov_base = c->heads[slot] + skip;
            parts[count++].iov_len = REQUEST_HEAD_BYTES - skip;
            skip = REQUEST_HEAD_BYTES;
        }
        parts[count].iov_base = (char *)frame->bytes + skip;
        parts[count++].iov_len = frame->size - skip;
        skip = 0;
    }
    return count;
}

static void watch(int poller, struct connection *c, int for_write)
{
    struct epoll_event event = {.events = EPOLLIN | (for_write ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event) < 0)
        fail("epoll_ctl");
    c->waits_for_write = for_write;
}

static void write_requests(int poller, struct connection *c)
{
    struct iovec parts[2 * IN_FLIGHT_MOST];
    while (c->queued) {
        ssize_t size = writev(c->fd, parts, gather(c, parts));
        if (size < 0 && errno == EAGAIN)
            break;
        if (size < 0)
            fail("writev");
        c->written += size;
        while (c->queued && c->written >= frames[c->frame_at[c->first]].size) {
            c->written -= frames[c->frame_at[c->first]].size;
            c->first = (c->first + 1) % IN_FLIGHT_MOST;
            c->queued--;
        }
    }
    if (c->waits_for_write != (c->queued > 0))
        watch(poller, c, c->queued > 0);
}

static void check_answer(struct connection *c)
{
    uint32_t id;
    uint16_t error;
    uint64_t offset;
    if (c->answer_bytes < least_answer)
        wrong("the size", c->answer_bytes, least_answer);
    memcpy(&id, c->answer + 4, 4);
    if ((int32_t)ntohl(id) != c->answered_id + 1)
        wrong("the correlation id", ntohl(id), c->answered_id + 1);
    c->answered_id++;
    for (int i = 0; i < errors_count; i++) {
        if (c->kept < (size_t)error_at[i] + 2)
            wrong("the size", c->answer_bytes, error_at[i] + 2);
        memcpy(&error, c->answer + error_at[i], 2);
        if (error)
            wrong("the error code", (int16_t)ntohs(error), 0);
    }
    if (offsets_rise) {
        memcpy(&offset, c->answer + error_at[0] + 2, 8);
        if ((int64_t)be64toh(offset) <= c->offset)
            wrong("the base offset", be64toh(offset), c->offset + 1);
        c->offset = be64toh(offset);
    }
    answers++;
}

/* Takes what was read; returns how many answers it completed. */
static int take(struct connection *c, const char *bytes, size_t size)
{
    int completed = 0;
    while (size) {
        size_t part = c->kept < 4 ? 4 - c->kept : c->answer_left;
        if (part > size)
            part = size;
        size_t keep = HEAD_BYTES - c->kept < part ? HEAD_BYTES - c->kept : part;
        memcpy(c->answer + c->kept, bytes, keep);
        if (c->kept < 4) {
            c->kept += keep;
            if (c->kept == 4) {
                uint32_t answer_bytes;
                memcpy(&answer_bytes, c->answer, 4);
                c->answer_bytes = c->answer_left = ntohl(answer_bytes);
            }
        } else {
            c->kept += keep;
            c->answer_left -= part;
        }
        bytes += part;
        size -= part;
        if (c->kept >= 4 && c->answer_left == 0) {
            check_answer(c);
            c->kept = 0;
            completed++;
        }
    }
    return completed;
}

/* Reads what is there; returns how many answers it completed. */
static int read_answers(struct connection *c)
{
    static char buffer[READ_BYTES];
    for (;;) {
        ssize_t size = recv(c->fd, buffer, sizeof buffer, 0);
        if (size < 0 && errno == EAGAIN)
            return 0;
        if (size <= 0)
            fail("the broker closed the connection");
        int completed = take(c, buffer, size);
        if (completed || (size_t)size < sizeof buffer)
            return completed;
    }
}

static struct connection *open_connections(int poller, int port, int count)
{
    struct connection *all = calloc(count, sizeof *all);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        all[i].offset = -1;
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].fd, (struct sockaddr *)&address, sizeof address) < 0)
            fail("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event) < 0)
            fail("epoll_ctl");
    }
    return all;
}

static void run(int poller)
{
    struct epoll_event events[64];
    while (!stopping || answers < requests) {
        int ready = epoll_wait(poller, events, 64, TIMEOUT_S * 1000);
        if (ready == 0) {
            errno = 0;
            fail("no answer for a minute");
        }
        stopping = stopping || now_s() >= until_s;
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            int more = events[i].events & EPOLLIN ? read_answers(c) : 0;
            for (; more && !stopping; more--) {
                add_request(c);
                stopping = requests >= most_requests;
            }
            if (c->queued)
                write_requests(poller, c);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 10) {
        fprintf(stderr, "usage: %s PORT CONNECTIONS IN_FLIGHT SECONDS MOST_REQUESTS LEAST_ANSWER OFFSETS_RISE "
                        "ERROR_AT[,ERROR_AT] FILE\n", argv[0]);
        return 2;
    }
    int count = atoi(argv[2]);
    in_flight = atoi(argv[3]);
    most_requests = atoll(argv[5]);
    least_answer = atoll(argv[6]);
    offsets_rise = atoi(argv[7]);
    for (char *at = strtok(argv[8], ","); at && errors_count < ERRORS_MOST; at = strtok(NULL, ","))
        error_at[errors_count++] = atoi(at);
    if (in_flight < 1 || in_flight > IN_FLIGHT_MOST || errors_count == 0) {
        fprintf(stderr, "IN_FLIGHT is 1 to %d, and one error code is checked at least\n", IN_FLIGHT_MOST);
        return 2;
    }
    read_frames(argv[9]);
    int poller = epoll_create1(0);
    struct connection *all = open_connections(poller, atoi(argv[1]), count);
    double start_s = now_s();
    until_s = start_s + atof(argv[4]);
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < in_flight; j++)
            add_request(&all[i]);
        write_requests(poller, &all[i]);
    }
    run(poller);
    double seconds = now_s() - start_s;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"requests\": %lld, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", (long long)answers, seconds,
           used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    return 0;
}
