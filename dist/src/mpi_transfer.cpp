#include "mpi_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/error.hpp>
#include <optional>

#include "mpi_call.hpp"

namespace heddle {

namespace {

/// What goes ahead of a message.
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

/// A message that is being received behind its header.
struct Expected {
  Tensor tensor;
  MessagePeer peer;
  std::int64_t elements_per_call;
};

}  // namespace

struct MpiTransfer::State {
  std::shared_ptr<void const> group;
  char const* verb;
  std::vector<Tensor> kept;
  Header header{};
  std::optional<Expected> expected = std::nullopt;
  std::vector<Request> requests = {};
  std::size_t completed = 0;
};

MpiTransfer::MpiTransfer(std::shared_ptr<void const> group, char const* verb, std::vector<Tensor> kept)
    : state_(std::make_unique<State>(State{std::move(group), verb, std::move(kept)})) {}

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
    // MPI may still write there, and waiting for a rank that never comes would hide the exception that passes.
    static_cast<void>(state_.release());
  }
}

MPI_Request* MpiTransfer::add_request() {
  return &state_->requests.emplace_back().handle;
}

void MpiTransfer::send_piece(void const* begin, int count, DType dtype, MessagePeer const& peer) {
  check_mpi(MPI_Isend(begin, count, mpi_type(dtype), peer.rank, peer.tag, peer.handle, add_request()), state_->verb);
}

void MpiTransfer::receive_piece(void* begin, int count, DType dtype, MessagePeer const& peer) {
  MPI_Datatype const type = mpi_type(dtype);
  check_mpi(MPI_Irecv(begin, count, type, peer.rank, peer.tag, peer.handle, add_request()), state_->verb);
  state_->requests.back().type = type;
  state_->requests.back().count = count;
}

void MpiTransfer::send_message(Tensor const& tensor, MessagePeer const& peer, std::int64_t elements_per_call) {
  state_->header = {static_cast<std::int64_t>(tensor.dtype()), tensor.size()};
  check_mpi(MPI_Isend(&state_->header, header_words, MPI_INT64_T, peer.rank, peer.tag, peer.handle, add_request()),
            state_->verb);
  for (auto const [begin, count] : message_pieces(tensor.size(), elements_per_call)) {
    send_piece(address(tensor, begin), count, tensor.dtype(), peer);
  }
}

void MpiTransfer::receive_message(Tensor const& tensor, MessagePeer const& peer, std::int64_t elements_per_call) {
  check_mpi(MPI_Irecv(&state_->header, header_words, MPI_INT64_T, peer.rank, peer.tag, peer.handle, add_request()),
            state_->verb);
  for (auto const [begin, count] : message_pieces(tensor.size(), elements_per_call)) {
    receive_piece(address(tensor, begin), count, tensor.dtype(), peer);
  }
  state_->expected = Expected{tensor, peer, elements_per_call};
}

bool MpiTransfer::progress() {
  return advance(false);
}

void MpiTransfer::wait() {
  advance(true);
}

bool MpiTransfer::advance(bool blocking) {
  auto& requests = state_->requests;
  while (state_->completed < requests.size()) {
    MPI_Request& handle = requests[state_->completed].handle;
    MPI_Status status;
    int done = 1;
    check_mpi(blocking ? MPI_Wait(&handle, &status) : MPI_Test(&handle, &done, &status), state_->verb);
    if (done == 0) {
      return false;
    }
    check_completed(status);
    ++state_->completed;
    if (state_->completed == 1 && state_->expected) {
      check_header();
    }
  }
  return true;
}

void MpiTransfer::check_completed(MPI_Status const& status) const {
  Request const& request = state_->requests[state_->completed];
  if (request.type == MPI_DATATYPE_NULL) {
    return;
  }
  int count = 0;
  check_mpi(MPI_Get_count(&status, request.type, &count), state_->verb);
  if (count != request.count) {
    throw Error(fmt::format("{}: rank {} sent {} elements where {} were expected", state_->verb, status.MPI_SOURCE,
                            count, request.count));
  }
}

void MpiTransfer::check_header() {
  auto const& [tensor, peer, elements_per_call] = *state_->expected;
  auto const [dtype_number, elements] = state_->header;
  auto const dtype = static_cast<DType>(dtype_number);
  if (dtype == tensor.dtype() && elements == tensor.size()) {
    return;
  }
  take_mismatched(elements, dtype);
  throw Error(fmt::format("{}: expected {} {} from rank {} with tag {}, but it sent {} elements of {}", state_->verb,
                          name_of(tensor.dtype()), tensor.shape().to_string(), peer.rank, peer.tag, elements,
                          name_of(dtype)));
}

/// The sender may be waiting, and the next message must not be met by the wrong one.
void MpiTransfer::take_mismatched(std::int64_t elements, DType dtype) {
  auto& requests = state_->requests;
  auto const& [tensor, peer, elements_per_call] = *state_->expected;
  auto const sent = message_pieces(elements, elements_per_call);
  for (std::size_t index = 0; index < std::max(sent.size(), requests.size() - 1); ++index) {
    if (index + 1 >= requests.size()) {
      Tensor const rest = Tensor::allocate(dtype, {sent[index].count});
      check_mpi(
          MPI_Recv(rest.raw(), sent[index].count, mpi_type(dtype), peer.rank, peer.tag, peer.handle, MPI_STATUS_IGNORE),
          state_->verb);
      continue;
    }
    if (index >= sent.size()) {
      check_mpi(MPI_Cancel(&requests[index + 1].handle), state_->verb);
    }
    int const code = MPI_Wait(&requests[index + 1].handle, MPI_STATUS_IGNORE);
    int error_class = MPI_SUCCESS;
    check_mpi(MPI_Error_class(code, &error_class), state_->verb);
    if (error_class != MPI_ERR_TRUNCATE) {
      check_mpi(code, state_->verb);
    }
  }
  state_->completed = requests.size();
}

}  // namespace heddle
