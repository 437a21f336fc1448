#include "communicator.hpp"

#include <fmt/format.h>

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

void require_tag(int tag, char const* verb) {
  if (tag >= reserved_tag) {
    throw Error(fmt::format("{}: tag {} is not below {}", verb, tag, reserved_tag));
  }
}

/// At least 32767 by the standard; the world communicator has the attribute.
int largest_tag(MPI_Comm world) {
  int* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(world, MPI_TAG_UB, &value, &found), "duplicate");
  return found != 0 ? *value : 32767;
}

void copy_elements(Tensor const& from, std::int64_t from_element, Tensor const& to, std::int64_t to_element,
                   std::int64_t count) {
  std::byte* const source = address(from, from_element);
  std::byte* const target = address(to, to_element);
  if (source != target && count > 0) {
    std::memcpy(target, source, static_cast<std::size_t>(count) * size_of(from.dtype()));
  }
}

/// One number for each rank; no allocation in groups of ordinary size.
template <class Number>
using OfRanks = boost::container::small_vector<Number, 32>;

OfRanks<std::int64_t> offsets_of(CommunicatorBackend::Counts counts) {
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

}  // namespace

std::shared_ptr<MpiCommunicator> MpiCommunicator::duplicate(MPI_Comm parent, std::int64_t elements_per_call,
                                                            std::int64_t elements_while_computing) {
  if (elements_per_call < 1 || elements_per_call > std::numeric_limits<int>::max() || elements_while_computing < 1) {
    throw Error(fmt::format("one MPI call cannot move {} elements", elements_per_call));
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

RankOrderReduction::Channel MpiCommunicator::next_channel(std::int64_t elements_per_call) {
  // Reductions are started in the same order on every rank, and far fewer than these tags are in flight at once.
  int const tag = reserved_tag + 1 + 2 * (reductions_++ % reduction_tags);
  return {shared_from_this(), handle_, rank_, tag, elements_per_call, buffers_};
}

void MpiCommunicator::reduce_in_rank_order(RankOrderReduction::Call call) {
  RankOrderReduction(next_channel(rules_.elements_per_call), std::move(call)).wait();
}

std::vector<std::int64_t> MpiCommunicator::shares(std::int64_t elements) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < size_; ++rank) {
    counts.push_back(share(elements, rank, size_).count());
  }
  return counts;
}

RankOrderReduction::Call MpiCommunicator::all_reduce_call(Tensor const& tensor, ReduceOp op) const {
  Tensor const flat = tensor.reshaped({tensor.size()});
  IndexRange const own = share(tensor.size(), rank_, size_);
  return {"all_reduce", flat, flat.rows(own.begin, own.count()), shares(tensor.size()), op, true};
}

std::unique_ptr<TransferBackend> MpiCommunicator::start_all_reduce(Tensor const& tensor, ReduceOp op) {
  return std::make_unique<RankOrderReduction>(next_channel(rules_.elements_while_computing),
                                              all_reduce_call(tensor, op));
}

std::unique_ptr<TransferBackend> MpiCommunicator::start_reduce_scatter(Tensor const& input, Tensor const& output,
                                                                       ReduceOp op) {
  return std::make_unique<RankOrderReduction>(
      next_channel(rules_.elements_while_computing),
      RankOrderReduction::Call{"reduce_scatter", input, output, shares(input.size()), op, false});
}

MPI_Op MpiCommunicator::operation(ReduceOp op) {
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

std::unique_ptr<MpiTransfer> MpiCommunicator::transfer(char const* verb, MpiTransfer::Kept kept) const {
  return std::make_unique<MpiTransfer>(shared_from_this(), verb, std::move(kept));
}

void MpiCommunicator::all_reduce(Tensor const& tensor, ReduceOp op) {
  if (tensor.dtype() == DType::bfloat16) {
    return reduce_in_rank_order(all_reduce_call(tensor, op));
  }
  for (auto const [begin, count] : pieces(tensor.size(), rules_.elements_per_call)) {
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, address(tensor, begin), count, mpi_type(tensor.dtype()), operation(op), handle_),
        "all_reduce");
  }
}

void MpiCommunicator::reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) {
  if (input.dtype() == DType::bfloat16) {
    return reduce_in_rank_order({"reduce_scatter", input, output, shares(input.size()), op, false});
  }
  if (input.size() > rules_.elements_per_call) {
    std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), output.size());
    reduce_in_pieces(input, output, counts, operation(op));
    return;
  }
  check_mpi(MPI_Reduce_scatter_block(input.raw(), output.raw(), static_cast<int>(output.size()),
                                     mpi_type(input.dtype()), operation(op), handle_),
            "reduce_scatter");
}

void MpiCommunicator::reduce_scatter_uneven(Tensor const& input, Tensor const& output, Counts counts) {
  if (input.dtype() == DType::bfloat16) {
    return reduce_in_rank_order(
        {"reduce_scatter_rows", input, output, {counts.begin(), counts.end()}, ReduceOp::sum, false});
  }
  if (input.size() > rules_.elements_per_call) {
    reduce_in_pieces(input, output, counts, MPI_SUM);
    return;
  }
  check_mpi(
      MPI_Reduce_scatter(input.raw(), output.raw(), narrow(counts).data(), mpi_type(input.dtype()), MPI_SUM, handle_),
      "reduce_scatter_rows");
}

void MpiCommunicator::reduce_in_pieces(Tensor const& input, Tensor const& output, Counts counts, MPI_Op op) const {
  auto const offsets = offsets_of(counts);
  for (int part = 0; part < size_; ++part) {
    auto const slot = static_cast<std::size_t>(part);
    for (auto const [begin, count] : pieces(counts[slot], rules_.elements_per_call)) {
      void* const result = part == rank_ ? address(output, begin) : nullptr;
      check_mpi(
          MPI_Reduce(address(input, offsets[slot] + begin), result, count, mpi_type(input.dtype()), op, part, handle_),
          "reduce_scatter");
    }
  }
}

void const* MpiCommunicator::gather_source(Tensor const& input, Tensor const& output, std::int64_t own_begin) const {
  return input.raw() == address(output, own_begin) && input.size() > 0 ? MPI_IN_PLACE : input.raw();
}

void MpiCommunicator::all_gather(Tensor const& input, Tensor const& output) {
  if (output.size() > rules_.elements_per_call) {
    std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), input.size());
    gather_in_pieces(input, output, counts);
    return;
  }
  MPI_Datatype const type = mpi_type(input.dtype());
  int const count = static_cast<int>(input.size());
  check_mpi(MPI_Allgather(gather_source(input, output, rank_ * input.size()), count, type, output.raw(), count, type,
                          handle_),
            "all_gather");
}

void MpiCommunicator::all_gather_uneven(Tensor const& input, Tensor const& output, Counts counts) {
  if (output.size() > rules_.elements_per_call) {
    gather_in_pieces(input, output, counts);
    return;
  }
  MPI_Datatype const type = mpi_type(input.dtype());
  auto const offsets = offsets_of(counts);
  void const* const source = gather_source(input, output, offsets[static_cast<std::size_t>(rank_)]);
  check_mpi(MPI_Allgatherv(source, static_cast<int>(input.size()), type, output.raw(), narrow(counts).data(),
                           narrow(offsets).data(), type, handle_),
            "all_gather_rows");
}

void MpiCommunicator::gather_in_pieces(Tensor const& input, Tensor const& output, Counts counts) const {
  auto const offsets = offsets_of(counts);
  copy_elements(input, 0, output, offsets[static_cast<std::size_t>(rank_)], input.size());
  for (int part = 0; part < size_; ++part) {
    auto const slot = static_cast<std::size_t>(part);
    for (auto const [begin, count] : pieces(counts[slot], rules_.elements_per_call)) {
      check_mpi(MPI_Bcast(address(output, offsets[slot] + begin), count, mpi_type(input.dtype()), part, handle_),
                "all_gather");
    }
  }
}

std::unique_ptr<TransferBackend> MpiCommunicator::start_all_gather(Tensor const& input, Tensor const& output) {
  auto result = transfer("all_gather", {input, output});
  MPI_Datatype const type = mpi_type(input.dtype());
  if (output.size() <= rules_.elements_per_call) {
    int const count = static_cast<int>(input.size());
    check_mpi(MPI_Iallgather(gather_source(input, output, rank_ * input.size()), count, type, output.raw(), count, type,
                             handle_, result->add_request()),
              "all_gather");
    return result;
  }
  copy_elements(input, 0, output, rank_ * input.size(), input.size());
  for (int part = 0; part < size_; ++part) {
    for (auto const [begin, count] : pieces(input.size(), rules_.elements_per_call)) {
      check_mpi(
          MPI_Ibcast(address(output, part * input.size() + begin), count, type, part, handle_, result->add_request()),
          "all_gather");
    }
  }
  return result;
}

void MpiCommunicator::all_to_all(Tensor const& input, Tensor const& output) {
  std::int64_t const part = input.size() / size_;
  if (input.size() > rules_.elements_per_call) {
    std::vector<std::int64_t> const counts(static_cast<std::size_t>(size_), part);
    all_to_all_uneven(input, counts, output, counts);
    return;
  }
  MPI_Datatype const type = mpi_type(input.dtype());
  int const count = static_cast<int>(part);
  check_mpi(MPI_Alltoall(input.raw(), count, type, output.raw(), count, type, handle_), "all_to_all");
}

/// One message for each pair, because a rank cannot know whether another's counts fit MPI_Alltoallv's ints.
void MpiCommunicator::all_to_all_uneven(Tensor const& input, Counts send_counts, Tensor const& output,
                                        Counts receive_counts) {
  auto const send_offsets = offsets_of(send_counts);
  auto const receive_offsets = offsets_of(receive_counts);
  auto const exchange = transfer("all_to_all", {input, output});
  for (int step = 1; step < size_; ++step) {
    int const source = (rank_ - step + size_) % size_;
    auto const slot = static_cast<std::size_t>(source);
    for (auto const [begin, count] : message_pieces(receive_counts[slot], rules_.elements_per_call)) {
      exchange->receive_piece(address(output, receive_offsets[slot] + begin), count, output.dtype(),
                              {handle_, source, reserved_tag});
    }
  }
  for (int step = 1; step < size_; ++step) {
    int const destination = (rank_ + step) % size_;
    auto const slot = static_cast<std::size_t>(destination);
    for (auto const [begin, count] : message_pieces(send_counts[slot], rules_.elements_per_call)) {
      exchange->send_piece(address(input, send_offsets[slot] + begin), count, input.dtype(),
                           {handle_, destination, reserved_tag});
    }
  }
  auto const own = static_cast<std::size_t>(rank_);
  copy_elements(input, send_offsets[own], output, receive_offsets[own], send_counts[own]);
  exchange->wait();
}

void MpiCommunicator::broadcast(Tensor const& tensor, int root) {
  for (auto const [begin, count] : pieces(tensor.size(), rules_.elements_per_call)) {
    check_mpi(MPI_Bcast(address(tensor, begin), count, mpi_type(tensor.dtype()), root, handle_), "broadcast");
  }
}

void MpiCommunicator::barrier() {
  check_mpi(MPI_Barrier(handle_), "barrier");
}

std::unique_ptr<TransferBackend> MpiCommunicator::start_send(Tensor const& tensor, int destination, int tag) {
  require_tag(tag, "send");
  auto result = transfer("send", {tensor});
  result->send_message(tensor, {handle_, destination, tag}, rules_);
  return result;
}

std::unique_ptr<TransferBackend> MpiCommunicator::start_receive(Tensor const& tensor, int source, int tag) {
  require_tag(tag, "receive");
  auto result = transfer("receive", {tensor});
  result->receive_message(tensor, {handle_, source, tag}, rules_, true);
  return result;
}

void MpiCommunicator::receive(Tensor const& tensor, int source, int tag) {
  require_tag(tag, "receive");
  auto const here = transfer("receive", {tensor});
  here->receive_message(tensor, {handle_, source, tag}, rules_, false);
  here->wait();
}

std::shared_ptr<CommunicatorBackend> MpiCommunicator::split(int color, int key, std::string const& /*name*/) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(handle_, color, key, &part), "split");
  return std::shared_ptr<MpiCommunicator>(new MpiCommunicator(part, rules_));
}

}  // namespace heddle
