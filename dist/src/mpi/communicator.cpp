#include "communicator.hpp"

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstring>
#include <heddle/core/base/error.hpp>
#include <heddle/core/base/index_range.hpp>
#include <limits>
#include <numeric>

#include "call.hpp"

namespace heddle {

namespace {

/// At least 32767 by the standard; the world communicator has the attribute.
int largest_tag(MPI_Comm world) {
  int* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(world, MPI_TAG_UB, &value, &found), "duplicate");
  return found != 0 ? *value : 32767;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
  }
  return MPI_OP_NULL;
}

/// A rank's part of the elements of a tensor.
struct Part {
  Tensor const& tensor;
  std::int64_t begin;
};

void copy_elements(Part const& from, Part const& to, std::int64_t count) {
  std::byte* const source = address(from.tensor, from.begin);
  std::byte* const target = address(to.tensor, to.begin);
  if (source != target && count > 0) {
    std::memcpy(target, source, static_cast<std::size_t>(count) * size_of(from.tensor.dtype()));
  }
}

/// One number for each rank; no allocation in groups of ordinary size.
template <class Number>
using OfRanks = boost::container::small_vector<Number, 32>;

/// The elements of each rank's part of `whole`.
OfRanks<std::int64_t> counts_of(CollectiveCall::Counts uneven, Tensor const& whole, int ranks) {
  if (!uneven.empty()) {
    return OfRanks<std::int64_t>(uneven.begin(), uneven.end());
  }
  return OfRanks<std::int64_t>(static_cast<std::size_t>(ranks), whole.size() / ranks);
}

OfRanks<std::int64_t> offsets_of(CollectiveCall::Counts counts) {
  OfRanks<std::int64_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::int64_t{0});
  return offsets;
}

OfRanks<int> narrow(std::span<std::int64_t const> numbers) {
  OfRanks<int> result;
  for (std::int64_t const number : numbers) {
    result.push_back(static_cast<int>(number));
  }
  return result;
}

/// MPI's send buffer of a gather: the input, or the mark that it is already in place.
void const* gather_source(CollectiveCall const& call, std::int64_t own_begin) {
  return call.input.raw() == address(call.output, own_begin) && call.input.size() > 0 ? MPI_IN_PLACE : call.input.raw();
}

}  // namespace

std::shared_ptr<MpiCommunicator> MpiCommunicator::duplicate(MPI_Comm parent, std::int64_t elements_per_call,
                                                            std::int64_t elements_while_computing) {
  if (elements_per_call < 1 || elements_per_call > std::numeric_limits<int>::max() || elements_while_computing < 1) {
    throw Error("one MPI call cannot move {} elements", elements_per_call);
  }
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &handle), "duplicate");
  return std::shared_ptr<MpiCommunicator>(new MpiCommunicator(
      handle, {elements_per_call, std::min(elements_per_call, elements_while_computing), largest_tag(parent)}));
}

MpiCommunicator::MpiCommunicator(MPI_Comm handle, MessageRules const& rules) : handle_(handle), rules_(rules) {
  check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "start");
  check_mpi(MPI_Comm_rank(handle_, &rank_), "start");
  check_mpi(MPI_Comm_size(handle_, &size_), "start");
}

MpiCommunicator::~MpiCommunicator() {
  bool const unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (!unwinding && mpi_is_running()) {
    MPI_Comm_free(&handle_);
  }
}

std::unique_ptr<TransferBackend> MpiCommunicator::run(CollectiveCall const& call) {
  switch (call.collective) {
    case CollectiveOp::all_reduce:
      return all_reduce(call);
    case CollectiveOp::reduce_scatter:
      return reduce_scatter(call);
    case CollectiveOp::all_gather:
      return all_gather(call);
    case CollectiveOp::all_to_all:
      all_to_all(call);
      break;
    case CollectiveOp::broadcast:
      for_each_piece(call.input.size(), rules_.elements_per_call, [&](std::int64_t begin, int count) {
        check_mpi(MPI_Bcast(address(call.input, begin), count, mpi_type(call.input.dtype()), call.peer, handle_),
                  call.name());
      });
      break;
    case CollectiveOp::send:
    case CollectiveOp::receive:
      return message(call);
    case CollectiveOp::barrier:
      check_mpi(MPI_Barrier(handle_), call.name());
      break;
    case CollectiveOp::split:
      break;  // a call of its own
  }
  return nullptr;
}

std::unique_ptr<MpiTransfer> MpiCommunicator::transfer(CollectiveCall const& call) const {
  return std::make_unique<MpiTransfer>(shared_from_this(), call.name(), MpiTransfer::Kept{call.input, call.output});
}

PeerMemory* MpiCommunicator::peer_memory(std::int64_t bytes) {
  constexpr std::int64_t min_bytes = 1 << 16;  // messages of fewer are as fast
  if (bytes < min_bytes) {
    return nullptr;
  }
  if (!has_tried_to_attach_) {
    peer_memory_ = PeerMemory::attach(handle_);
    has_tried_to_attach_ = true;
  }
  return peer_memory_.get();
}

MpiCommunicator::Pending MpiCommunicator::reduce_in_rank_order(RankOrderReduction::Call call, bool starts) {
  if (PeerMemory* const peers = starts ? nullptr : peer_memory(call.input.bytes()); peers != nullptr) {
    peers->reduce(call);
    return nullptr;
  }
  // Reductions are started in the same order on every rank, and far fewer than these tags are in flight at once.
  int const tag = reserved_tag + 1 + 2 * (reductions_++ % reduction_tags);
  RankOrderReduction::Channel channel{shared_from_this(),
                                      handle_,
                                      rank_,
                                      tag,
                                      starts ? rules_.elements_while_computing : rules_.elements_per_call,
                                      buffers_};
  auto reduction = std::make_unique<RankOrderReduction>(std::move(channel), std::move(call));
  if (starts) {
    return reduction;
  }
  reduction->wait();
  return nullptr;
}

MpiCommunicator::Pending MpiCommunicator::all_reduce(CollectiveCall const& call) {
  Tensor const& tensor = call.input;
  // A sum of two numbers has no order. With more ranks, sums of other types are MPI's, so that their bits do not depend
  // on which ranks share a host.
  bool const sums_two = size_ == 2 && call.op == ReduceOp::sum;
  if (call.starts || tensor.dtype() == DType::bfloat16 || (sums_two && peer_memory(tensor.bytes()) != nullptr)) {
    Tensor const flat = tensor.reshaped({tensor.size()});
    std::vector<std::int64_t> counts;
    counts.reserve(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      counts.push_back(share(tensor.size(), rank, size_).count());
    }
    IndexRange const own = share(tensor.size(), rank_, size_);
    return reduce_in_rank_order(
        {call.name(), flat, flat.rows(own.begin, own.count()), std::move(counts), call.op, true}, call.starts);
  }
  for_each_piece(tensor.size(), rules_.elements_per_call, [&](std::int64_t begin, int count) {
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, address(tensor, begin), count, mpi_type(tensor.dtype()), mpi_op(call.op), handle_),
        call.name());
  });
  return nullptr;
}

// Open MPI 4.1's MPI_Reduce_scatter moves half as many bytes a second between two ranks of a host.
MpiCommunicator::Pending MpiCommunicator::reduce_scatter(CollectiveCall const& call) {
  auto const counts = counts_of(call.counts, call.input, size_);
  return reduce_in_rank_order({call.name(), call.input, call.output, {counts.begin(), counts.end()}, call.op, false},
                              call.starts);
}

MpiCommunicator::Pending MpiCommunicator::all_gather(CollectiveCall const& call) const {
  Tensor const& input = call.input;
  Tensor const& output = call.output;
  auto started = call.starts ? transfer(call) : nullptr;
  MPI_Datatype const type = mpi_type(input.dtype());
  int const count = static_cast<int>(input.size());
  if (output.size() > rules_.elements_per_call) {
    gather_in_pieces(call, started.get());
  } else if (!call.counts.empty()) {
    auto const offsets = offsets_of(call.counts);
    void const* const source = gather_source(call, offsets[static_cast<std::size_t>(rank_)]);
    check_mpi(MPI_Allgatherv(source, count, type, output.raw(), narrow(call.counts).data(), narrow(offsets).data(),
                             type, handle_),
              call.name());
  } else {
    void const* const source = gather_source(call, rank_ * input.size());
    check_mpi(started ? MPI_Iallgather(source, count, type, output.raw(), count, type, handle_, started->add_request())
                      : MPI_Allgather(source, count, type, output.raw(), count, type, handle_),
              call.name());
  }
  return started;
}

void MpiCommunicator::gather_in_pieces(CollectiveCall const& call, MpiTransfer* started) const {
  auto const counts = counts_of(call.counts, call.output, size_);
  auto const offsets = offsets_of(counts);
  MPI_Datatype const type = mpi_type(call.output.dtype());
  copy_elements({call.input, 0}, {call.output, offsets[static_cast<std::size_t>(rank_)]}, call.input.size());
  for (int part = 0; part < size_; ++part) {
    auto const slot = static_cast<std::size_t>(part);
    for_each_piece(counts[slot], rules_.elements_per_call, [&](std::int64_t begin, int count) {
      std::byte* const piece = address(call.output, offsets[slot] + begin);
      check_mpi(started != nullptr ? MPI_Ibcast(piece, count, type, part, handle_, started->add_request())
                                   : MPI_Bcast(piece, count, type, part, handle_),
                call.name());
    });
  }
}

void MpiCommunicator::all_to_all(CollectiveCall const& call) const {
  Tensor const& input = call.input;
  Tensor const& output = call.output;
  auto const send_offsets = offsets_of(call.counts);
  auto const receive_offsets = offsets_of(call.receive_counts);
  auto const slot = [](int rank) { return static_cast<std::size_t>(rank); };
  // One message for each pair, because a rank cannot know whether another's counts fit MPI_Alltoallv's ints.
  auto const messages = transfer(call);
  messages->exchange(
      {handle_, rank_, size_, reserved_tag, input.dtype(), rules_.elements_per_call, true},
      [&](int rank) {
        return MessageBlock{address(output, receive_offsets[slot(rank)]), call.receive_counts[slot(rank)]};
      },
      [&](int rank) {
        return MessageBlock{address(input, send_offsets[slot(rank)]), call.counts[slot(rank)]};
      });
  copy_elements({input, send_offsets[slot(rank_)]}, {output, receive_offsets[slot(rank_)]}, call.counts[slot(rank_)]);
  messages->wait();
}

MpiCommunicator::Pending MpiCommunicator::message(CollectiveCall const& call) const {
  if (call.tag >= reserved_tag) {
    throw Error("{}: tag {} is not below {}", call.name(), call.tag, reserved_tag);
  }
  MessagePeer const peer{handle_, call.peer, call.tag};
  auto message = transfer(call);
  if (call.collective == CollectiveOp::send) {
    message->send_message(call.input, peer, rules_);
    return message;
  }
  message->receive_message(call.output, peer, rules_, call.starts);
  if (call.starts) {
    return message;
  }
  message->wait();
  return nullptr;
}

std::shared_ptr<CommunicatorBackend> MpiCommunicator::split(int color, int key, std::string const& /*name*/) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(handle_, color, key, &part), "split");
  return std::shared_ptr<MpiCommunicator>(new MpiCommunicator(part, rules_));
}

}  // namespace heddle
