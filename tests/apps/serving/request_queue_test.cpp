#include "serving/workers/request_queue.hpp"

#include "serving/workers/worker_message.hpp"
#include "test.hpp"

namespace heddle {
namespace {

class RequestQueueTest : public ::testing::Test {
 protected:
  using RequestPointer = std::shared_ptr<TranslationRequest const>;

  /// Adds a request for whose results somebody waits.
  RequestPointer add(std::vector<std::string> lines) {
    requests_.push_back(std::make_shared<TranslationRequest>(TranslationRequest{.lines = std::move(lines)}));
    queue_.add(requests_.back());
    return requests_.back();
  }
  /// All texts in the order in which the queue gives them.
  std::string order() {
    std::string texts;
    while (auto const next = queue_.next()) {
      texts += next->request.lock()->lines[next->line] + " ";
    }
    return texts;
  }

  std::vector<RequestPointer> requests_;
  RequestQueue queue_{6};
};

TEST_F(RequestQueueTest, TakesOneTextOfEachRequestInTurnTheLongestFirst) {
  add({"1", "333", "22", "2b"});
  add({"x"});
  EXPECT_EQ(queue_.size(), 5);
  EXPECT_EQ(order(), "333 x 22 2b 1 ");
  EXPECT_EQ(queue_.size(), 0);
}

TEST_F(RequestQueueTest, ALaterRequestHasItsTurnAfterOneTextOfEachOther) {
  add({"a1", "a2", "a3"});
  add({"b1", "b2"});
  for (int text = 0; text < 3; ++text) {
    queue_.next();
  }
  add({"c1", "c2"});
  EXPECT_EQ(order(), "b2 a3 c1 c2 ");
}

TEST_F(RequestQueueTest, IsBounded) {
  add({"a", "b", "c", "d"});
  try {
    add({"e", "f", "g"});
    FAIL() << "seven texts in a queue of six";
  } catch (HttpError const& error) {
    EXPECT_EQ(error.status, 429);
  }
  add({"e", "f"});
  EXPECT_EQ(queue_.size(), 6);
  queue_.next();
  add({"g"});
  add({});
  EXPECT_EQ(queue_.size(), 6);
}

TEST_F(RequestQueueTest, LeavesOutWhatNobodyReceives) {
  add({"a", "b", "c"});
  add({"x"});
  requests_.erase(requests_.begin());
  EXPECT_EQ(order(), "x ");
  EXPECT_EQ(queue_.size(), 0);
  queue_.drop(add({"a", "b"}));
  EXPECT_EQ(queue_.size(), 0);
  EXPECT_EQ(order(), "");
}

TEST(WorkerMessageTest, IsTakenOutOnlyWhole) {
  std::string const bytes = to_bytes(WorkerMessage::finished, 7, "{}") + to_bytes(WorkerMessage::alive, 0, "");
  std::string received;
  std::string taken;
  for (char const byte : bytes) {
    received += byte;
    take_messages(received, [&](WorkerMessage message, std::int64_t number, std::string_view content) {
      taken += fmt::format("{} {} {};", static_cast<std::int64_t>(message), number, content);
    });
  }
  EXPECT_EQ(taken, "6 7 {};4 0 ;");
  EXPECT_TRUE(received.empty());
  received = bytes;
  int messages = 0;
  take_messages(received, [&](WorkerMessage, std::int64_t, std::string_view) { ++messages; });
  EXPECT_EQ(messages, 2);
}

TEST(WorkerMessageTest, ATextComesWithItsOptions) {
  ServedOptions const options{"m\n", "law", "en", "de", 4, 3, 20, 0.7, true, false, true};
  ServedOptions same;
  EXPECT_EQ(read_text(text_bytes(options, "a line"), same), "a line");
  EXPECT_EQ(same, options);
}

}  // namespace
}  // namespace heddle
