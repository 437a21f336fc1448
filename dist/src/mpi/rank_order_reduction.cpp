#include "rank_order_reduction.hpp"

#include <algorithm>
#include <numeric>

namespace heddle {

Tensor BufferPool::take(DType dtype, std::int64_t elements) {
  auto const bytes = elements * static_cast<std::int64_t>(size_of(dtype));
  auto const found = std::ranges::find_if(free_, [&](Tensor const& buffer) { return buffer.bytes() >= bytes; });
  if (found == free_.end()) {
    if (!free_.empty()) {
      free_.pop_back();  // too small: the new one replaces it
    }
    return Tensor::allocate_on_host(dtype, {elements});
  }
  Tensor buffer = std::move(*found);
  free_.erase(found);
  return buffer;
}

RankOrderReduction::RankOrderReduction(Channel channel, Call call)
    : channel_(std::move(channel)), call_(std::move(call)), offsets_(call_.counts.size()) {
  std::exclusive_scan(call_.counts.begin(), call_.counts.end(), offsets_.begin(), std::int64_t{0});
  buffer_ = channel_.buffers->take(call_.input.dtype(), (ranks() - 1) * count(channel_.rank));
  start_exchange();
}

RankOrderReduction::~RankOrderReduction() {
  if (!exchange_ && !gather_) {
    return;
  }
  if (std::uncaught_exceptions() <= exceptions_at_start_) {
    try {
      wait();
    } catch (std::exception const&) {
      // The result is not read; its transfers are left to MPI.
      return;
    }
  }
}

std::byte* RankOrderReduction::received(int rank) const {
  std::int64_t const slot = rank < channel_.rank ? rank : rank - 1;
  std::int64_t const bytes = count(channel_.rank) * static_cast<std::int64_t>(size_of(call_.input.dtype()));
  return static_cast<std::byte*>(buffer_.raw()) + slot * bytes;
}

template <class Incoming, class Outgoing>
std::unique_ptr<MpiTransfer> RankOrderReduction::start(int tag, Incoming const& incoming,
                                                       Outgoing const& outgoing) const {
  auto transfer = std::make_unique<MpiTransfer>(channel_.owner, call_.collective,
                                                MpiTransfer::Kept{call_.input, call_.output, buffer_});
  transfer->exchange({channel_.handle, channel_.rank, ranks(), tag, call_.input.dtype(), channel_.elements_per_call},
                     incoming, outgoing);
  return transfer;
}

void RankOrderReduction::start_exchange() {
  exchange_ = start(
      channel_.tag,
      [&](int rank) {
        return MessageBlock{received(rank), count(channel_.rank)};
      },
      [&](int rank) {
        return MessageBlock{address(call_.input, offset(rank)), count(rank)};
      });
}

void RankOrderReduction::reduce() {
  std::vector<void const*> parts;
  for (int rank = 0; rank < ranks(); ++rank) {
    parts.push_back(rank == channel_.rank ? address(call_.input, offset(rank)) : received(rank));
  }
  combine_parts(call_.input.dtype(), call_.op, parts, call_.output.raw(), count(channel_.rank));
}

void RankOrderReduction::start_gather() {
  gather_ = start(
      channel_.tag + 1,
      [&](int rank) {
        return MessageBlock{address(call_.input, offset(rank)), count(rank)};
      },
      [&](int) {
        return MessageBlock{address(call_.output, 0), count(channel_.rank)};
      });
}

bool RankOrderReduction::progress() {
  if (exchange_) {
    if (!exchange_->progress()) {
      return false;
    }
    reduce();
    exchange_.reset();
    channel_.buffers->release(std::move(buffer_));
    if (call_.gathers) {
      start_gather();
    }
  }
  if (gather_) {
    if (!gather_->progress()) {
      return false;
    }
    gather_.reset();
  }
  return true;
}

void RankOrderReduction::wait() {
  if (exchange_) {
    exchange_->wait();
    progress();
  }
  if (gather_) {
    gather_->wait();
    gather_.reset();
  }
}

}  // namespace heddle
