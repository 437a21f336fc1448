#include "peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <numeric>
#include <random>

#include "call.hpp"

namespace heddle {

namespace {

/// A rank sends this to the others, who compare it with what they read at `address`. A process of another container may
/// have the same number, but not the same random words in the same place.
struct ProcessKey {
  std::int64_t process;
  std::uint64_t address;
  std::array<std::uint64_t, 2> random;
};

/// A rank's tensor in a call, and a digest of what must be the same on all ranks.
struct TensorAddress {
  std::uint64_t tensor;
  std::uint64_t digest;
};

using KernelCopy = ssize_t (*)(pid_t, iovec const*, unsigned long, iovec const*, unsigned long, unsigned long);

bool copy(KernelCopy kernel_copy, std::int64_t process, void* own, std::uint64_t theirs, std::int64_t bytes) {
  auto const size = static_cast<std::size_t>(bytes);
  iovec const here{own, size};
  iovec const there{reinterpret_cast<void*>(theirs), size};  // NOLINT(performance-no-int-to-ptr): not our memory
  ssize_t const copied = kernel_copy(static_cast<pid_t>(process), &here, 1, &there, 1, 0);
  if (copied >= 0 && copied != static_cast<ssize_t>(bytes)) {
    errno = EFAULT;  // a part of the memory does not exist
  }
  return copied == static_cast<ssize_t>(bytes);
}

std::uint64_t random_words(std::random_device& device) {
  return (std::uint64_t{device()} << 32U) | device();
}

/// Whether the kernel lets this process read the memory of the peer and write there, which a filter of system calls may
/// permit separately. Writes what is there. Ranks of a simulation are threads of one process, and their sums must
/// remain messages, whose time it computes.
bool can_access(ProcessKey const& peer, ProcessKey const& own) {
  ProcessKey found{};
  return peer.process != own.process && copy(process_vm_readv, peer.process, &found, peer.address, sizeof found) &&
         std::memcmp(&found, &peer, sizeof found) == 0 &&
         copy(process_vm_writev, peer.process, &found, peer.address, sizeof found);
}

/// The other ranks' blocks fill at most half of a level 2 cache of 1 MiB, except where smaller blocks would cost more
/// in system calls than in bytes.
std::int64_t block_bytes(int ranks) {
  constexpr std::int64_t line = 64;
  return std::clamp<std::int64_t>((std::int64_t{1} << 19) / (ranks - 1), 1 << 14, 1 << 17) / line * line;
}

/// A digest of what must be the same on all ranks.
std::uint64_t digest_of(RankOrderReduction::Call const& call) {
  std::uint64_t digest = 0;
  auto const add = [&](std::int64_t number) {
    digest = digest * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(number) + 1;
  };
  add(static_cast<std::int64_t>(call.input.dtype()));
  add(static_cast<std::int64_t>(call.op));
  add(call.gathers ? 1 : 0);
  std::ranges::for_each(call.counts, add);
  return digest;
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::attach(MPI_Comm group) {
  int rank = 0;
  int ranks = 0;
  check_mpi(MPI_Comm_rank(group, &rank), "attach");
  check_mpi(MPI_Comm_size(group, &ranks), "attach");
  if (ranks == 1) {
    return nullptr;
  }
  std::random_device device;
  ProcessKey own{getpid(), 0, {random_words(device), random_words(device)}};
  own.address = reinterpret_cast<std::uint64_t>(&own);
  std::vector<ProcessKey> all(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, group), "attach");
  int reaches_all = 1;
  std::vector<Peer> peers;
  for (int other = 0; other < ranks; ++other) {
    ProcessKey const& peer = all[static_cast<std::size_t>(other)];
    reaches_all = reaches_all != 0 && (other == rank || can_access(peer, own)) ? 1 : 0;
    peers.push_back({peer.process, 0});
  }
  int all_reach_all = 0;
  check_mpi(MPI_Allreduce(&reaches_all, &all_reach_all, 1, MPI_INT, MPI_MIN, group), "attach");
  if (all_reach_all == 0) {
    return nullptr;
  }
  return std::unique_ptr<PeerMemory>(new PeerMemory(group, rank, std::move(peers)));
}

PeerMemory::PeerMemory(MPI_Comm group, int rank, std::vector<Peer> peers)
    : group_(group),
      rank_(rank),
      peers_(std::move(peers)),
      block_(block_bytes(ranks())),
      buffer_(Tensor::allocate_on_host(DType::float32, {block_ / 4 * (ranks() - 1)})) {}

void PeerMemory::exchange_addresses(RankOrderReduction::Call const& call) {
  TensorAddress const own{reinterpret_cast<std::uint64_t>(call.input.raw()), digest_of(call)};
  std::vector<TensorAddress> all(peers_.size());
  check_mpi(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, group_), call.collective);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].digest != all[0].digest) {
      throw Error("{}: rank {} has other numbers or types of elements than rank 0", call.collective, rank);
    }
    peers_[rank].tensor = all[rank].tensor;
  }
}

void PeerMemory::reduce(RankOrderReduction::Call const& call) {
  exchange_addresses(call);
  auto const own = call.counts.begin() + rank_;
  auto const width = static_cast<std::int64_t>(size_of(call.input.dtype()));
  std::int64_t const begin = std::accumulate(call.counts.begin(), own, std::int64_t{0}) * width;
  std::int64_t const bytes = *own * width;
  for (std::int64_t done = 0; done < bytes; done += block_) {
    reduce_block(call, begin + done, done, std::min(block_, bytes - done));
  }
  // A tensor may be changed when no rank reads or writes it any more.
  check_mpi(MPI_Barrier(group_), call.collective);
}

void PeerMemory::require(bool copied, RankOrderReduction::Call const& call, int rank) const {
  if (!copied) {
    std::string const reason = std::strerror(errno);
    check_mpi(MPI_Barrier(group_), call.collective);
    throw Error("{}: the memory of rank {} cannot be accessed: {}", call.collective, rank, reason);
  }
}

void PeerMemory::reduce_block(RankOrderReduction::Call const& call, std::int64_t offset, std::int64_t own_offset,
                              std::int64_t bytes) {
  std::byte* const input = static_cast<std::byte*>(call.input.raw()) + offset;
  std::byte* const output = static_cast<std::byte*>(call.output.raw()) + own_offset;
  auto const position = [&](int rank) {
    return peers_[static_cast<std::size_t>(rank)].tensor + static_cast<std::uint64_t>(offset);
  };
  auto const process = [&](int rank) { return peers_[static_cast<std::size_t>(rank)].process; };
  std::vector<void const*> parts(peers_.size(), input);
  // Each rank begins with another one, so that not all read the same memory at a time.
  for (int step = 1; step < ranks(); ++step) {
    int const rank = (rank_ + step) % ranks();
    require(copy(process_vm_readv, process(rank), received(rank), position(rank), bytes), call, rank);
    parts[static_cast<std::size_t>(rank)] = received(rank);
  }
  auto const width = static_cast<std::int64_t>(size_of(call.input.dtype()));
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): every dtype has bytes
  combine_parts(call.input.dtype(), call.op, parts, output, bytes / width);
  for (int step = 1; call.gathers && step < ranks(); ++step) {
    int const rank = (rank_ + step) % ranks();
    require(copy(process_vm_writev, process(rank), output, position(rank), bytes), call, rank);
  }
}

}  // namespace heddle
