#include "engine/experts/pread_reader.h"

#include <pthread.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "engine/device/check.h"
#include "engine/device/tensor.h"
#include "engine/support/faults.h"

namespace terrace {
namespace {

/// Reads are between this and twice this long: long enough for a drive's full rate, short enough
/// that a demand or a cancel does not wait for a whole expert.
constexpr std::int64_t kReadBytes = std::int64_t{1} << 20;

/// Rounding to nearest, no flushing of denormals, exceptions masked: what the arithmetic contract
/// asks of every thread that computes. A foreign library may have changed it on the way here.
constexpr unsigned kMxcsr = 0x1F80;

std::int64_t round_down(std::int64_t n, std::int64_t unit) {
    return n / unit * unit;
}

std::int64_t widened_bytes(const ReadExtent& extent) {
    return round_up(extent.offset + extent.bytes, kDirectAlignment) -
           round_down(extent.offset, kDirectAlignment);
}

Result<Buffer> allocate_slab(Device& device, std::int64_t bytes, FaultInjector* faults) {
    if (faults != nullptr && faults->next_host_allocation_fails()) {
        return Error{
            ErrorCode::OutOfMemory,
            "no memory for a staging slab of " + std::to_string(bytes) + " bytes (injected fault)",
            device.name(), "Give the model less memory for experts."};
    }
    return device.allocate(bytes);
}

}  // namespace

std::int64_t slab_bytes_for(std::span<const ReadExtent> extents) {
    std::int64_t bytes = 0;
    for (const ReadExtent& extent : extents) {
        bytes += widened_bytes(extent);
    }
    return bytes;
}

Result<std::unique_ptr<PreadReader>> PreadReader::create(
    std::span<const std::filesystem::path> paths,
    Device& device,
    ReadListener& listener,
    const PreadReaderOptions& options) {
    CHECK(options.n_threads > 0 && options.n_slabs > 0 && options.slab_bytes > 0);
    const std::int64_t slab_bytes = round_up(options.slab_bytes, kDirectAlignment);
    std::unique_ptr<PreadReader> reader(new PreadReader(listener, slab_bytes));
    for (const std::filesystem::path& path : paths) {
        Result<File> file = File::open(path, {options.mode, options.faults});
        if (!file) {
            return std::move(file).error();
        }
        reader->files_.push_back(std::move(file).value());
    }
    for (int i = 0; i < options.n_slabs; ++i) {
        Result<Buffer> memory = allocate_slab(device, slab_bytes, options.faults);
        if (!memory) {
            return std::move(memory).error().in("staging of expert reads");
        }
        reader->slabs_.emplace_back().memory = std::move(memory).value();
    }
    try {
        for (int i = 0; i < options.n_threads; ++i) {
            reader->threads_.emplace_back([raw = reader.get(), i] { raw->run(i); });
        }
    } catch (const std::system_error& failure) {
        return Error{ErrorCode::OutOfMemory,
                     std::string("the reader's threads cannot be started: ") + failure.what(),
                     "expert reader", "Raise the limit of processes (ulimit -u)."};
    }
    return reader;
}

PreadReader::~PreadReader() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        for (std::deque<ReadRequest>& queue : queued_) {
            queue.clear();
        }
        for (Slab& slab : slabs_) {
            if (slab.state == SlabState::Reading) {
                slab.state = SlabState::Ending;
            }
        }
    }
    work_.notify_all();
    threads_.clear();
}

void PreadReader::submit(const ReadRequest& request) {
    CHECK(!request.extents.empty() && slab_bytes_for(request.extents) <= slab_bytes_);
    {
        const std::lock_guard lock(mutex_);
        queued_[static_cast<std::size_t>(request.priority)].push_back(request);
    }
    work_.notify_all();
}

void PreadReader::raise_priority(std::uint64_t tag, ReadPriority priority) {
    const std::lock_guard lock(mutex_);
    for (Slab& slab : slabs_) {
        if (slab.state == SlabState::Reading && slab.request.tag == tag) {
            slab.request.priority = std::max(slab.request.priority, priority);
            return;
        }
    }
    for (std::size_t p = 0; p < static_cast<std::size_t>(priority); ++p) {
        const auto found =
            std::find_if(queued_[p].begin(), queued_[p].end(),
                         [tag](const ReadRequest& request) { return request.tag == tag; });
        if (found != queued_[p].end()) {
            ReadRequest request = *found;
            request.priority = priority;
            queued_[p].erase(found);
            queued_[static_cast<std::size_t>(priority)].push_back(request);
            // The last free slab takes demands only, so a thread may have something to do now.
            work_.notify_all();
            return;
        }
    }
}

ExpertReader::CancelOutcome PreadReader::cancel(std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    for (std::deque<ReadRequest>& queue : queued_) {
        const auto found =
            std::find_if(queue.begin(), queue.end(),
                         [tag](const ReadRequest& request) { return request.tag == tag; });
        if (found != queue.end()) {
            queue.erase(found);
            idle_.notify_all();
            return CancelOutcome::Dropped;
        }
    }
    for (Slab& slab : slabs_) {
        if (slab.state == SlabState::Reading && slab.request.tag == tag) {
            slab.state = SlabState::Ending;
            work_.notify_all();
        }
    }
    return CancelOutcome::WillComplete;
}

void PreadReader::drain() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return idle(); });
}

bool PreadReader::idle() const {
    const auto empty = [](const std::deque<ReadRequest>& queue) { return queue.empty(); };
    const auto is_free = [](const Slab& slab) { return slab.state == SlabState::Free; };
    return std::all_of(queued_.begin(), queued_.end(), empty) &&
           std::all_of(slabs_.begin(), slabs_.end(), is_free);
}

bool PreadReader::direct() const {
    return std::all_of(files_.begin(), files_.end(),
                       [](const File& file) { return file.direct(); });
}

void PreadReader::run(int thread_index) {
    const std::string name = "io-" + std::to_string(thread_index);
    static_cast<void>(::pthread_setname_np(::pthread_self(), name.c_str()));
    std::unique_lock lock(mutex_);
    while (true) {
        Slab* slab = nullptr;
        work_.wait(lock, [this, &slab] {
            slab = next_slab();
            return slab != nullptr || stopping_;
        });
        if (slab == nullptr) {
            return;
        }
        if (!slab->is_over()) {
            read_piece(*slab, lock);
        }
        if (slab->is_over()) {
            complete(*slab, lock);
        }
    }
}

/// The slab with the most urgent thing to do; begins a queued request where that is more urgent.
PreadReader::Slab* PreadReader::next_slab() {
    Slab* best = nullptr;
    for (Slab& slab : slabs_) {
        if (slab.is_over()) {
            return &slab;
        }
        if (!slab.has_piece()) {
            continue;
        }
        const bool more_urgent =
            best == nullptr || slab.request.priority > best->request.priority ||
            (slab.request.priority == best->request.priority && slab.order < best->order);
        best = more_urgent ? &slab : best;
    }
    Slab* begun = begin_next_request(best);
    return begun != nullptr ? begun : best;
}

/// Gives the most urgent queued request a slab, if it is more urgent than `current`.
PreadReader::Slab* PreadReader::begin_next_request(const Slab* current) {
    const auto queue = std::find_if(queued_.rbegin(), queued_.rend(),
                                    [](const auto& requests) { return !requests.empty(); });
    if (queue == queued_.rend()) {
        return nullptr;
    }
    const ReadRequest& request = queue->front();
    if (current != nullptr && current->request.priority >= request.priority) {
        return nullptr;
    }
    Slab* free = nullptr;
    std::size_t n_free = 0;
    for (Slab& slab : slabs_) {
        if (slab.state == SlabState::Free) {
            free = &slab;
            ++n_free;
        }
    }
    const bool reserved = request.priority != ReadPriority::Demand && slabs_.size() > 1;
    if (n_free < (reserved ? 2U : 1U)) {
        return nullptr;
    }
    free->request = request;
    queue->pop_front();
    free->state = SlabState::Reading;
    free->order = n_begun_++;
    free->next_piece = 0;
    free->error.reset();
    free->bytes = 0;
    free->seconds = 0.0;
    split(*free);
    return free;
}

void PreadReader::split(Slab& slab) const {
    slab.pieces.clear();
    slab.extents.clear();
    std::int64_t slab_offset = 0;
    for (const ReadExtent& extent : slab.request.extents) {
        append_pieces(slab, extent, slab_offset);
        const std::int64_t lead = extent.offset % kDirectAlignment;
        slab.extents.emplace_back(slab.memory.data() + slab_offset + lead,
                                  static_cast<std::size_t>(extent.bytes));
        slab_offset += widened_bytes(extent);
    }
}

void PreadReader::append_pieces(Slab& slab,
                                const ReadExtent& extent,
                                std::int64_t slab_offset) const {
    const bool direct = files_[static_cast<std::size_t>(extent.file)].direct();
    const std::int64_t end = extent.offset + extent.bytes;
    const std::int64_t widened_begin = round_down(extent.offset, kDirectAlignment);
    const std::int64_t begin = direct ? widened_begin : extent.offset;
    const std::int64_t n_pieces = std::max<std::int64_t>(1, (end - begin) / kReadBytes);
    const std::int64_t step = round_up((end - begin + n_pieces - 1) / n_pieces, kDirectAlignment);
    for (std::int64_t offset = begin; offset < end; offset += step) {
        Piece piece;
        piece.file = extent.file;
        piece.offset = offset;
        piece.slab_offset = slab_offset + offset - widened_begin;
        piece.needed = std::min(step, end - offset);
        piece.bytes = direct ? round_up(piece.needed, kDirectAlignment) : piece.needed;
        slab.pieces.push_back(piece);
    }
}

void PreadReader::read_piece(Slab& slab, std::unique_lock<std::mutex>& lock) {
    const Piece piece = slab.pieces[slab.next_piece++];
    ++slab.n_running;
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    const std::span<std::byte> out(slab.memory.data() + piece.slab_offset,
                                   static_cast<std::size_t>(piece.bytes));
    Status status =
        files_[static_cast<std::size_t>(piece.file)].read_exact(piece.offset, out, piece.needed);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    lock.lock();
    --slab.n_running;
    slab.seconds += time.count();
    if (status.ok()) {
        slab.bytes += piece.needed;
    } else {
        slab.state = SlabState::Ending;
        if (!slab.error) {
            slab.error = std::move(status).error();
        }
    }
}

void PreadReader::complete(Slab& slab, std::unique_lock<std::mutex>& lock) {
    ReadCompletion completion;
    completion.tag = slab.request.tag;
    completion.bytes = slab.bytes;
    completion.seconds = slab.seconds;
    if (slab.error) {
        completion.outcome = ReadCompletion::Outcome::Failed;
        completion.error = std::move(slab.error);
    } else if (slab.state == SlabState::Ending) {
        completion.outcome = ReadCompletion::Outcome::Cancelled;
    } else {
        completion.extents = slab.extents;
    }
    slab.state = SlabState::Completing;
    lock.unlock();
    _mm_setcsr(kMxcsr);
    listener_.read_done(completion);
    lock.lock();
    slab.state = SlabState::Free;
    work_.notify_all();
    idle_.notify_all();
}

}  // namespace terrace
