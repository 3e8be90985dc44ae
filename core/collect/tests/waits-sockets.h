// The calls on sockets, for waits-calls.h: with SO_RCVTIMEO or SO_SNDTIMEO the kernel never restarts them.
static void socket_setup(struct pair *p)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) exit(2);
	p->a = ends[0], p->b = ends[1];
}

static void timed_socket_setup(struct pair *p)
{
	socket_setup(p);
	setsockopt(p->a, SOL_SOCKET, SO_RCVTIMEO, &wait_timeval, sizeof wait_timeval);
	setsockopt(p->a, SOL_SOCKET, SO_SNDTIMEO, &wait_timeval, sizeof wait_timeval);
}

static int do_recv_timed(struct pair *p)
{
	char byte;
	return recv(p->a, &byte, 1, 0) < 0 && errno == EAGAIN ? 0 : 1;
}

static int do_recvmsg_timed(struct pair *p)
{
	char byte;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	return recvmsg(p->a, &m, 0) < 0 && errno == EAGAIN ? 0 : 1;
}

static void full_socket_setup(struct pair *p)
{
	static char zeros[4096];
	timed_socket_setup(p);
	while (send(p->a, zeros, sizeof zeros, MSG_DONTWAIT) > 0) {}
}

static int do_send_timed(struct pair *p)
{
	static char zeros[4096];
	return send(p->a, zeros, sizeof zeros, 0) < 0 && errno == EAGAIN ? 0 : 1;
}

static int do_recv(struct pair *p)
{
	char byte;
	return recv(p->a, &byte, 1, 0) == 1 ? 0 : 1;
}

// The feeder sends two halves: the call returns both.
static int do_recv_all(struct pair *p)
{
	char both[2];
	return recv(p->a, both, 2, MSG_WAITALL) == 2 ? 0 : 1;
}

static void feed_halves(struct pair *p)
{
	feed_pipe(p);
	usleep(100);
	feed_pipe(p);
}

static struct sockaddr_un address_of(struct pair *p, const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(p->path, sizeof p->path, "%s/%s", folder, name);
	strcpy(address.sun_path, p->path);
	return address;
}

static void listen_as(struct pair *p, const char *name)
{
	struct sockaddr_un address = address_of(p, name);
	p->a = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(p->a, (struct sockaddr *)&address, sizeof address) || listen(p->a, 0)) exit(2);
}

static void accept_timed_setup(struct pair *p)
{
	listen_as(p, "accept-timed");
	setsockopt(p->a, SOL_SOCKET, SO_RCVTIMEO, &wait_timeval, sizeof wait_timeval);
}

static int do_accept_timed(struct pair *p) { return accept(p->a, 0, 0) < 0 && errno == EAGAIN ? 0 : 1; }

static void accept_setup(struct pair *p) { listen_as(p, "accept"); }

static int do_accept(struct pair *p)
{
	int fd = accept4(p->a, 0, 0, SOCK_CLOEXEC);
	close(fd);
	return fd >= 0 ? 0 : 1;
}

static void feed_accept(struct pair *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, p->path);
	if (connect(fd, (struct sockaddr *)&address, sizeof address)) exit(2);
	close(fd);
}

// Nobody accepts, and the queue is full.
static void connect_timed_setup(struct pair *p)
{
	listen_as(p, "connect");
	for (int i = 0; i < 2; i++) {
		struct sockaddr_un address = address_of(p, "connect");
		connect(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&address, sizeof address);
	}
}

static int do_connect_timed(struct pair *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), is_right;
	strcpy(address.sun_path, p->path);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait_timeval, sizeof wait_timeval);
	is_right = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno == EAGAIN;
	close(fd);
	return is_right ? 0 : 1;
}
