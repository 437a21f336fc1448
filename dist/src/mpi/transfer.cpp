#include "transfer.hpp"

#include <fmt/format.h>

#include <heddle/core/base/error.hpp>
#include <optional>
#include <string>

namespace heddle {

namespace {

struct Header {
  std::int64_t dtype;
  std::int64_t elements;
};
constexpr int header_words = 2;

struct Request {
  MPI_Request handle = MPI_REQUEST_NULL;
  MPI_Datatype type = MPI_DATATYPE_NULL;  ///< null: nothing to count
  int count = 0;
};

struct Expected {
  Tensor tensor;
  MessagePeer peer;
  MessageRules rules;
  std::string mismatch = {};  ///< empty: the message was as expected
};

/// The buffer of a message's elements. Open MPI 4.1.4 writes past the end of a buffer that is shorter than its
/// message, so a message of another dtype or count should not match; each of the peer's tags has its own range.
MessagePeer data_peer(MessagePeer const& peer, Tensor const& tensor, MessageRules const& rules) {
  int const range = (rules.largest_tag + 1 - first_element_tag) / reserved_tag;
  std::int64_t const kind = tensor.size() * 4 + static_cast<std::int64_t>(tensor.dtype());
  return {peer.handle, peer.rank, first_element_tag + peer.tag * range + static_cast<int>(kind % range)};
}

}  // namespace

struct MpiTransfer::State {
  std::shared_ptr<void const> group;
  char const* collective;
  Kept kept;
  Header header{};
  std::optional<Expected> expected = std::nullopt;
  boost::container::small_vector<Request, 2> requests = {};
  std::size_t completed = 0;
};

MpiTransfer::MpiTransfer(std::shared_ptr<void const> group, char const* collective, Kept kept)
    : state_(std::make_unique<State>(State{std::move(group), collective, std::move(kept)})) {}

MpiTransfer::~MpiTransfer() {
  if (state_->completed == state_->requests.size() || !mpi_is_running()) {
    return;
  }
  bool abandoned = std::uncaught_exceptions() > exceptions_at_start_;
  if (!abandoned) {
    try {
      wait();
    } catch (std::exception const&) {
      abandoned = true;
    }
  }
  if (abandoned) {
    // MPI may still write there, and waiting for a rank that never comes would hide the exception.
    static_cast<void>(state_.release());
  }
}

MPI_Request* MpiTransfer::add_request() {
  return &state_->requests.emplace_back().handle;
}

void MpiTransfer::send_piece(void const* begin, int count, DType dtype, MessagePeer const& peer) {
  check_mpi(MPI_Isend(begin, count, mpi_type(dtype), peer.rank, peer.tag, peer.handle, add_request()),
            state_->collective);
}

void MpiTransfer::receive_piece(void* begin, int count, DType dtype, MessagePeer const& peer) {
  MPI_Datatype const type = mpi_type(dtype);
  check_mpi(MPI_Irecv(begin, count, type, peer.rank, peer.tag, peer.handle, add_request()), state_->collective);
  state_->requests.back().type = type;
  state_->requests.back().count = count;
}

void MpiTransfer::send_message(Tensor const& tensor, MessagePeer const& peer, MessageRules const& rules) {
  state_->header = {static_cast<std::int64_t>(tensor.dtype()), tensor.size()};
  check_mpi(MPI_Isend(&state_->header, header_words, MPI_INT64_T, peer.rank, peer.tag, peer.handle, add_request()),
            state_->collective);
  for_each_piece(tensor.size(), rules.elements_per_call, [&](std::int64_t begin, int count) {
    send_piece(address(tensor, begin), count, tensor.dtype(), data_peer(peer, tensor, rules));
  });
}

void MpiTransfer::receive_message(Tensor const& tensor, MessagePeer const& peer, MessageRules const& rules,
                                  bool post_at_once) {
  check_mpi(MPI_Irecv(&state_->header, header_words, MPI_INT64_T, peer.rank, peer.tag, peer.handle, add_request()),
            state_->collective);
  state_->expected = Expected{tensor, peer, rules};
  if (post_at_once) {
    post_data(tensor);
  }
}

void MpiTransfer::post_data(Tensor const& target) {
  Expected const& expected = *state_->expected;
  for_each_piece(target.size(), expected.rules.elements_per_call, [&](std::int64_t begin, int count) {
    receive_piece(address(target, begin), count, target.dtype(), data_peer(expected.peer, target, expected.rules));
  });
}

bool MpiTransfer::progress() {
  return advance(false);
}

void MpiTransfer::wait() {
  if (!mpi_is_running()) {
    throw Error("{}: MPI has ended before the transfer", state_->collective);
  }
  advance(true);
}

bool MpiTransfer::advance(bool blocking) {
  auto& requests = state_->requests;
  while (state_->completed < requests.size()) {
    MPI_Request& handle = requests[state_->completed].handle;
    MPI_Status status;
    int done = 1;
    check_mpi(blocking ? MPI_Wait(&handle, &status) : MPI_Test(&handle, &done, &status), state_->collective);
    if (done == 0) {
      return false;
    }
    check_completed(status);
    ++state_->completed;
    if (state_->completed == 1 && state_->expected) {
      check_header();
    }
  }
  if (state_->expected && !state_->expected->mismatch.empty()) {
    throw Error(state_->expected->mismatch);
  }
  return true;
}

void MpiTransfer::check_completed(MPI_Status const& status) const {
  Request const& request = state_->requests[state_->completed];
  if (request.type == MPI_DATATYPE_NULL) {
    return;
  }
  int count = 0;
  check_mpi(MPI_Get_count(&status, request.type, &count), state_->collective);
  if (count != request.count) {
    throw Error("{}: rank {} sent {} elements where {} were expected", state_->collective, status.MPI_SOURCE, count,
                request.count);
  }
}

void MpiTransfer::check_header() {
  auto& [tensor, peer, rules, mismatch] = *state_->expected;
  auto& requests = state_->requests;
  bool const posted = requests.size() > 1;
  auto const dtype = static_cast<DType>(state_->header.dtype);
  std::int64_t const elements = state_->header.elements;
  if (dtype == tensor.dtype() && elements == tensor.size()) {
    if (!posted) {
      post_data(tensor);
    }
    return;
  }
  mismatch =
      fmt::format("{}: expected {} {} from rank {} with tag {}, but it sent {} elements of {}", state_->collective,
                  name_of(tensor.dtype()), tensor.shape().to_string(), peer.rank, peer.tag, elements, name_of(dtype));
  for (; requests.size() > 1; requests.pop_back()) {
    check_mpi(MPI_Cancel(&requests.back().handle), state_->collective);
    check_mpi(MPI_Wait(&requests.back().handle, MPI_STATUS_IGNORE), state_->collective);
  }
  // It is received all the same: the sender may be waiting.
  state_->kept.push_back(Tensor::allocate_on_host(dtype, {elements}));
  post_data(state_->kept.back());
}

}  // namespace heddle
