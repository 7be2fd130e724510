/* The mlx5 provider's own posting and polling code over queues that lie in plain memory: what it stores, and what it makes of
 * completions, is the oracle of `--bin wqe`.
 *
 * Reads requests from standard input and writes to standard output what was stored for them, as tests/src/mlx5/rdma_core.rs says.
 * Integers are the machine's own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5.h"
#include "wqe.h"

enum { PIECES = 16, POSTS = 64, REGISTERS = 1024, LONGEST = 1024 };

struct setup {
	uint32_t blocks, qpn, connected, flame_bytes, takes_entries, prefers, receive_entries, receive_units;
};

struct destination {
	uint32_t ethernet, version, lid, path_bits, level, rate, global, gid_index, flow_label, hop_limit, traffic_class, qpn, qkey;
	uint8_t gid[16], mac[6], pad[2];
};

struct request {
	struct destination to;
	uint32_t is_inline, signalled, solicited, has_immediate, pieces;
	uint8_t immediate[4];
	/* Of a connected queue pair: which of `opcodes`, the peer's memory, and what an atomic operation adds or compares, and swaps. */
	uint32_t operation, key, pad;
	uint64_t address, operands[2];
};

static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

struct piece {
	uint64_t address;
	uint32_t bytes, key;
};

/* What `ibv_wc` says of a completion. */
struct completion {
	uint64_t number;
	uint32_t status, is_receive, vendor, bytes, source, qpn, lid, level, global, has_immediate;
	uint8_t immediate[4], pad[4];
};

/* Of a part of the provider that is not compiled. */
int mlx5_freeze_on_error_cqe;

static struct mlx5_context context;
static struct mlx5_qp qp;
static struct mlx5_bf bf;
static struct mlx5_cq cq;
static struct ibv_pd pd;
static struct setup setup;
static __be32 records[2];
static uint8_t *ring, *receive_ring, registers[REGISTERS] __attribute__((aligned(64)));
static const struct destination *resolving;

int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned int index, enum ibv_gid_type_sysfs *type)
{
	*type = resolving->version == 2 ? IBV_GID_TYPE_SYSFS_ROCE_V2 : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *c, struct ibv_ah_attr *attr, uint8_t mac[6], uint16_t *vid)
{
	memcpy(mac, resolving->mac, 6);
	return 0;
}

static void get(void *to, size_t bytes)
{
	if (bytes && fread(to, bytes, 1, stdin) != 1)
		exit(feof(stdin) ? 0 : 2);
}

static void put(const void *from, size_t bytes)
{
	if (bytes && fwrite(from, bytes, 1, stdout) != 1)
		exit(3);
}

static void *zeros(size_t count, size_t bytes)
{
	void *memory = NULL;
	if (posix_memalign(&memory, 64, count * bytes))
		exit(4);
	return memset(memory, 0, count * bytes);
}

static void fabricate(void)
{
	free(ring);
	free(receive_ring);
	free(qp.sq.wrid);
	free(qp.sq.wqe_head);
	free(qp.sq.wr_data);
	free(qp.rq.wrid);
	memset(&qp, 0, sizeof qp);
	memset(&bf, 0, sizeof bf);
	memset(records, 0, sizeof records);
	get(&setup, sizeof setup);

	ring = zeros(setup.blocks, MLX5_SEND_WQE_BB);
	receive_ring = zeros(setup.receive_entries, setup.receive_units * 16);
	pd.context = &context.ibv_ctx.context;
	context.num_ports = 1;
	context.prefer_bf = setup.prefers;
	qp.ibv_qp = &qp.verbs_qp.qp;
	qp.ibv_qp->context = pd.context;
	qp.ibv_qp->qp_type = setup.connected ? IBV_QPT_RC : IBV_QPT_UD;
	qp.ibv_qp->qp_num = setup.qpn;
	qp.ibv_qp->state = IBV_QPS_RTS;
	qp.ibv_qp->send_cq = qp.ibv_qp->recv_cq = &cq.verbs_cq.cq;
	qp.max_inline_data = LONGEST;
	qp.atomics_enabled = 1;
	qp.db = records;
	qp.bf = &bf;
	bf.reg = registers;
	bf.buf_size = setup.flame_bytes;
	bf.uuarn = setup.takes_entries;

	qp.sq_start = ring;
	qp.sq.qend = ring + setup.blocks * MLX5_SEND_WQE_BB;
	qp.sq.wqe_cnt = setup.blocks;
	qp.sq.max_post = 1u << 30;
	qp.sq.max_gs = qp.sq.qp_state_max_gs = PIECES;
	qp.sq.wrid = zeros(setup.blocks, sizeof *qp.sq.wrid);
	qp.sq.wqe_head = zeros(setup.blocks, sizeof *qp.sq.wqe_head);
	qp.sq.wr_data = zeros(setup.blocks, sizeof *qp.sq.wr_data);

	qp.buf.buf = receive_ring;
	qp.rq.wqe_cnt = setup.receive_entries;
	qp.rq.wqe_shift = __builtin_ctz(setup.receive_units * 16);
	qp.rq.max_post = 1u << 30;
	qp.rq.max_gs = qp.rq.qp_state_max_gs = setup.receive_units;
	qp.rq.wrid = zeros(setup.receive_entries, sizeof *qp.rq.wrid);
}

static struct ibv_ah *resolve(const struct destination *to)
{
	struct ibv_ah_attr attr = {
		.grh = { .flow_label = to->flow_label, .sgid_index = to->gid_index, .hop_limit = to->hop_limit,
			 .traffic_class = to->traffic_class },
		.dlid = to->lid, .sl = to->level, .src_path_bits = to->path_bits, .static_rate = to->rate,
		.is_global = to->global, .port_num = 1,
	};
	struct ibv_ah *ah;

	memcpy(attr.grh.dgid.raw, to->gid, 16);
	context.cached_link_layer[0] = to->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
	resolving = to;
	ah = mlx5_create_ah(&pd, &attr);
	if (!ah)
		exit(5);
	return ah;
}

static void connected(struct ibv_send_wr *wr, const struct request *request)
{
	if (request->operation >= sizeof opcodes / sizeof *opcodes)
		exit(6);
	wr->opcode = opcodes[request->operation];
	if (wr->opcode == IBV_WR_RDMA_WRITE && request->has_immediate)
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	if (request->operation < 2) {
		wr->wr.rdma.remote_addr = request->address;
		wr->wr.rdma.rkey = request->key;
		return;
	}
	wr->wr.atomic.remote_addr = request->address;
	wr->wr.atomic.rkey = request->key;
	wr->wr.atomic.compare_add = request->operands[0];
	wr->wr.atomic.swap = request->operands[1];
}

static void send(void)
{
	static struct ibv_send_wr wrs[POSTS], *bad;
	static struct ibv_sge pieces[POSTS][PIECES];
	static uint8_t bytes[POSTS][PIECES][LONGEST];
	struct request request;
	struct piece piece;
	uint32_t count, i, j;

	get(&count, sizeof count);
	if (!count || count > POSTS)
		exit(6);
	for (i = 0; i < count; i++) {
		get(&request, sizeof request);
		if (request.pieces > PIECES)
			exit(6);
		for (j = 0; j < request.pieces; j++) {
			get(&piece, sizeof piece);
			if (request.is_inline) {
				if (piece.bytes > LONGEST)
					exit(6);
				get(bytes[i][j], piece.bytes);
				piece.address = (uintptr_t)bytes[i][j];
			}
			pieces[i][j] = (struct ibv_sge){ piece.address, piece.bytes, piece.key };
		}
		wrs[i] = (struct ibv_send_wr){
			.next = i + 1 < count ? &wrs[i + 1] : NULL, .sg_list = pieces[i], .num_sge = request.pieces,
			.opcode = request.has_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
			.send_flags = (request.is_inline ? IBV_SEND_INLINE : 0) | (request.signalled ? IBV_SEND_SIGNALED : 0) |
				      (request.solicited ? IBV_SEND_SOLICITED : 0),
		};
		memcpy(&wrs[i].imm_data, request.immediate, 4);
		if (setup.connected)
			connected(&wrs[i], &request);
		else
			wrs[i].wr.ud = (__typeof__(wrs[i].wr.ud)){ resolve(&request.to), request.to.qpn, request.to.qkey };
	}
	memset(ring, 0, setup.blocks * MLX5_SEND_WQE_BB);
	memset(registers, 0, sizeof registers);
	if (mlx5_post_send(qp.ibv_qp, wrs, &bad))
		exit(7);
	for (i = 0; i < count && !setup.connected; i++)
		free(to_mah(wrs[i].wr.ud.ah));
	put(ring, setup.blocks * MLX5_SEND_WQE_BB);
	put(&records[MLX5_SND_DBR], 4);
	put(registers, sizeof registers);
}

static void receive(void)
{
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_sge list[PIECES];
	struct piece piece;
	uint32_t count, i;

	get(&count, sizeof count);
	if (count > PIECES)
		exit(6);
	for (i = 0; i < count; i++) {
		get(&piece, sizeof piece);
		list[i] = (struct ibv_sge){ piece.address, piece.bytes, piece.key };
	}
	wr.sg_list = list;
	wr.num_sge = count;
	if (mlx5_post_recv(qp.ibv_qp, &wr, &bad))
		exit(7);
	put(receive_ring, setup.receive_entries * setup.receive_units * 16);
	put(&records[MLX5_RCV_DBR], 4);
}

static void complete(void)
{
	static uint8_t entry[64] __attribute__((aligned(64)));
	static struct mlx5_buf buf = { .buf = entry };
	static __be32 record[2];
	struct completion completion;
	struct ibv_wc wc;
	uint32_t count, i;

	for (i = 0; i < setup.blocks; i++)
		qp.sq.wrid[i] = i;
	for (i = 0; i < setup.receive_entries; i++)
		qp.rq.wrid[i] = i;
	qp.rsc.type = MLX5_RSC_TYPE_QP;
	cq.verbs_cq.cq.context = pd.context;
	cq.active_buf = &buf;
	cq.cqe_sz = sizeof entry;
	cq.dbrec = record;
	if (mlx5_store_qp(&context, setup.qpn, &qp))
		exit(4);
	get(&count, sizeof count);
	for (i = 0; i < count; i++) {
		get(entry, sizeof entry);
		memset(&wc, 0, sizeof wc);
		cq.cons_index = 0;
		if (mlx5_poll_cq(&cq.verbs_cq.cq, 1, &wc) != 1)
			exit(9);
		completion = (struct completion){
			.number = wc.wr_id, .status = wc.status, .is_receive = wc.opcode == IBV_WC_RECV, .vendor = wc.vendor_err,
			.bytes = wc.byte_len, .source = wc.src_qp, .qpn = wc.qp_num, .lid = wc.slid, .level = wc.sl,
			.global = !!(wc.wc_flags & IBV_WC_GRH), .has_immediate = !!(wc.wc_flags & IBV_WC_WITH_IMM),
		};
		memcpy(completion.immediate, &wc.imm_data, 4);
		put(&completion, sizeof completion);
	}
	mlx5_clear_qp(&context, setup.qpn);
}

int main(void)
{
	uint32_t what;

	for (;;) {
		get(&what, sizeof what);
		switch (what) {
		case 0:
			fabricate();
			break;
		case 1:
			send();
			break;
		case 2:
			receive();
			break;
		case 3:
			fflush(stdout);
			break;
		case 4:
			complete();
			break;
		default:
			exit(8);
		}
	}
}
